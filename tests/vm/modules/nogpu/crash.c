// SPDX-License-Identifier: GPL-2.0
#include <linux/module.h>

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("a module that takes the kernel down (a test double)");

static int __init crash_init(void)
{
	panic("crash: on purpose");
	return 0;
}

module_init(crash_init);
