// SPDX-License-Identifier: GPL-2.0
#include <linux/module.h>

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("a module that ends as nvidia.ko does without a GPU (a test double)");
MODULE_VERSION("535.261.03");

int nogpu_symbol(void)
{
	return 0;
}
EXPORT_SYMBOL(nogpu_symbol);

static int __init nogpu_init(void)
{
	pr_err("NVRM: No NVIDIA GPU found.\n");
	return -ENODEV;
}

module_init(nogpu_init);
