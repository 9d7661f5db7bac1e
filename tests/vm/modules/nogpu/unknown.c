// SPDX-License-Identifier: GPL-2.0
#include <linux/module.h>

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("a module that calls what no kernel has (a test double)");

int symbol_of_another_kernel(void);

static int __init unknown_init(void)
{
	return symbol_of_another_kernel();
}

module_init(unknown_init);
