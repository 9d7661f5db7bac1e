// SPDX-License-Identifier: GPL-2.0
#include <linux/delay.h>
#include <linux/module.h>

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("a module whose init never ends (a test double)");

/* msleep is uninterruptible: no signal ends the program that waits for it */
static int __init stuck_init(void)
{
	pr_info("stuck: waiting for a device that never answers\n");
	for (;;)
		msleep(1000);
	return 0;
}

module_init(stuck_init);
