// SPDX-License-Identifier: GPL-2.0
#include "mock.h"

MOCK_MODULE("the nvidia-peermem module");

static int __init mock_init(void)
{
	return fail ? -fail : mock_nvidia_symbol();
}

static void __exit mock_exit(void)
{
}

module_init(mock_init);
module_exit(mock_exit);
