// SPDX-License-Identifier: GPL-2.0
#include <linux/module.h>

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("a module that needs nvidia.ko and a network driver (a test double)");

int nogpu_symbol(void);
int ib_register_peer_memory_client(void);

static int __init peermem_init(void)
{
	return nogpu_symbol() + ib_register_peer_memory_client();
}

module_init(peermem_init);
