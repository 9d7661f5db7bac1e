// SPDX-License-Identifier: GPL-2.0
#include <linux/module.h>

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("a module that needs nvidia.ko (a test double)");

int nogpu_symbol(void);

static int __init uvm_init(void)
{
	return nogpu_symbol();
}

module_init(uvm_init);
