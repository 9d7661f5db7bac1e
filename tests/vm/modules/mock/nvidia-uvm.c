// SPDX-License-Identifier: GPL-2.0
#include <linux/fs.h>

#include "mock.h"

static const struct file_operations operations = { .owner = THIS_MODULE };
static int major;
MOCK_MODULE("the nvidia-uvm module");

static int __init mock_init(void)
{
	if (fail)
		return -fail;
	major = register_chrdev(0, "nvidia-uvm", &operations); /* a dynamic major, as the real one */
	return major < 0 ? major : mock_nvidia_symbol();
}

static void __exit mock_exit(void)
{
	unregister_chrdev(major, "nvidia-uvm");
}

module_init(mock_init);
module_exit(mock_exit);
