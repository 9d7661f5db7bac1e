// SPDX-License-Identifier: GPL-2.0
/*
 * fakegpu: a TEST DOUBLE. A PCI root bus (domain 1, bus 0) whose functions exist in software only.
 *
 * The configuration space of each function is an array in memory; its BARs lie in RAM that was kept from
 * the kernel with memmap=SIZE$BASE on the kernel's command line. That is enough for a driver to match its
 * PCI id table, map BAR 0 and read the boot register. There is no GPU behind it: firmware, interrupts and
 * DMA never answer.
 *
 *   modprobe fakegpu base=0x30000000                             one function, an A100: 10de:20b0, class 0302
 *   modprobe fakegpu base=0x30000000 functions=2330:030200:180000a1,20b0:030200:170000a1
 *
 * A function is DEVICE:CLASS[:BOOT0], all hexadecimal; BOOT0 is what a read of the first register
 * (NV_PMC_BOOT_0) gives.
 */
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/string.h>

#define VENDOR 0x10de
#define SUBSYSTEM 0x16c1
#define MAX_FUNCTIONS 2
#define CONFIG_SIZE 4096
#define BAR_SIZE (16u << 20)
#define BARS_PER_FUNCTION 4
#define CAP_PM 0x60
#define CAP_EXPRESS 0x78
#define BOOT_42 0xa00 /* NV_PMC_BOOT_42 repeats chip and revision in other bits */

struct function {
	u8 config[CONFIG_SIZE];
	u32 bar_mask[6];
	bool present;
};

static unsigned long base;
module_param(base, ulong, 0444);
MODULE_PARM_DESC(base, "physical address of RAM reserved with memmap=");
static char *functions = "20b0:030200:170000a1";
module_param(functions, charp, 0444);
MODULE_PARM_DESC(functions, "comma list of DEVICE:CLASS[:BOOT0], hexadecimal");

static struct function table[MAX_FUNCTIONS];
static struct pci_bus *root_bus;
static struct pci_sysdata sysdata = { .domain = 1, .node = NUMA_NO_NODE };
static struct resource memory = { .name = "fakegpu memory", .flags = IORESOURCE_MEM };
static struct resource busses = { .name = "fakegpu bus", .start = 0, .end = 0, .flags = IORESOURCE_BUS };

static struct function *lookup(unsigned int devfn)
{
	unsigned int slot = PCI_SLOT(devfn);

	return PCI_FUNC(devfn) || slot >= MAX_FUNCTIONS || !table[slot].present ? NULL : &table[slot];
}

static int config_read(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	struct function *f = lookup(devfn);

	if (!f) {
		*value = ~0u;
		return PCIBIOS_DEVICE_NOT_FOUND;
	}
	*value = 0;
	if (where + size <= CONFIG_SIZE)
		memcpy(value, f->config + where, size);
	return PCIBIOS_SUCCESSFUL;
}

static bool writable(int where, int size)
{
	if (where == PCI_COMMAND || where == PCI_INTERRUPT_LINE || where == PCI_CACHE_LINE_SIZE)
		return true;
	return where >= 0x40 && where + size <= CONFIG_SIZE;
}

static int config_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	struct function *f = lookup(devfn);

	if (!f)
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (where >= PCI_BASE_ADDRESS_0 && where <= PCI_BASE_ADDRESS_5 && size == 4) {
		int bar = (where - PCI_BASE_ADDRESS_0) / 4;
		u32 old;

		memcpy(&old, f->config + where, 4);
		value = (value & f->bar_mask[bar]) | (old & 0xf & ~f->bar_mask[bar]);
		memcpy(f->config + where, &value, 4);
	} else if (writable(where, size)) {
		memcpy(f->config + where, &value, size);
	}
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops operations = { .read = config_read, .write = config_write };

static void put16(struct function *f, int where, u16 value)
{
	memcpy(f->config + where, &value, sizeof(value));
}

static void put32(struct function *f, int where, u32 value)
{
	memcpy(f->config + where, &value, sizeof(value));
}

static void set_bar(struct function *f, int bar, u32 flags, u32 address)
{
	put32(f, PCI_BASE_ADDRESS_0 + 4 * bar, address | flags);
	f->bar_mask[bar] = ~(BAR_SIZE - 1);
	if (flags & PCI_BASE_ADDRESS_MEM_TYPE_64)
		f->bar_mask[bar + 1] = ~0u;
}

static void set_registers(unsigned long address, unsigned int boot0)
{
	void __iomem *bar0 = ioremap(address, BAR_SIZE);

	if (!bar0)
		return;
	memset_io(bar0, 0, BAR_SIZE);
	writel(boot0, bar0);
	writel((boot0 & 0x1ff00000) | ((boot0 & 0xff) << 12), bar0 + BOOT_42);
	iounmap(bar0);
}

static void add_function(struct function *f, unsigned long address, unsigned int device, unsigned int class,
			 unsigned int boot0)
{
	const u32 prefetchable64 = PCI_BASE_ADDRESS_MEM_PREFETCH | PCI_BASE_ADDRESS_MEM_TYPE_64;

	put16(f, PCI_VENDOR_ID, VENDOR);
	put16(f, PCI_DEVICE_ID, device);
	put16(f, PCI_COMMAND, PCI_COMMAND_IO | PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
	put16(f, PCI_STATUS, PCI_STATUS_CAP_LIST);
	put32(f, PCI_CLASS_REVISION, class << 8 | 0xa1);
	put16(f, PCI_SUBSYSTEM_VENDOR_ID, VENDOR);
	put16(f, PCI_SUBSYSTEM_ID, SUBSYSTEM);
	set_bar(f, 0, 0, address);
	set_bar(f, 1, prefetchable64, address + BAR_SIZE);
	set_bar(f, 3, prefetchable64, address + 2 * BAR_SIZE);
	f->config[PCI_INTERRUPT_LINE] = 11;
	f->config[PCI_INTERRUPT_PIN] = 1;
	f->config[PCI_CAPABILITY_LIST] = CAP_PM;
	f->config[CAP_PM] = PCI_CAP_ID_PM;
	f->config[CAP_PM + PCI_CAP_LIST_NEXT] = CAP_EXPRESS;
	f->config[CAP_PM + PCI_PM_PMC] = 3;
	f->config[CAP_EXPRESS] = PCI_CAP_ID_EXP;
	f->config[CAP_EXPRESS + PCI_EXP_FLAGS] = 2;
	put32(f, CAP_EXPRESS + PCI_EXP_LNKCAP, 0x105);
	put16(f, CAP_EXPRESS + PCI_EXP_LNKSTA, 0x1105);
	set_registers(address, boot0);
	f->present = true;
}

static int parse_functions(void)
{
	char *copy = kstrdup(functions, GFP_KERNEL), *rest = copy, *word;
	int count = 0;

	if (!copy)
		return -ENOMEM;
	while ((word = strsep(&rest, ",")) && count < MAX_FUNCTIONS) {
		unsigned int device, class, boot0 = 0;

		if (sscanf(word, "%x:%x:%x", &device, &class, &boot0) < 2) {
			pr_err("fakegpu: '%s' is not DEVICE:CLASS[:BOOT0]\n", word);
			count = -EINVAL;
			break;
		}
		add_function(&table[count], base + (unsigned long)count * BARS_PER_FUNCTION * BAR_SIZE, device,
			     class, boot0);
		count++;
	}
	kfree(copy);
	return count;
}

static int __init fakegpu_init(void)
{
	LIST_HEAD(resources);
	int count, error;

	if (!base) {
		pr_err("fakegpu: base= is needed\n");
		return -EINVAL;
	}
	count = parse_functions();
	if (count < 0)
		return count;
	memory.start = base;
	memory.end = base + (unsigned long)MAX_FUNCTIONS * BARS_PER_FUNCTION * BAR_SIZE - 1;
	error = insert_resource(&iomem_resource, &memory); /* a strict part of the reserved region */
	if (error) {
		pr_err("fakegpu: %pR is not free: reserve a larger region with memmap=\n", &memory);
		return error;
	}
	pci_add_resource(&resources, &memory);
	pci_add_resource(&resources, &busses);
	root_bus = pci_scan_root_bus(NULL, 0, &operations, &sysdata, &resources);
	if (!root_bus) {
		pci_free_resource_list(&resources);
		release_resource(&memory);
		return -ENODEV;
	}
	pci_bus_claim_resources(root_bus);
	pci_assign_unassigned_bus_resources(root_bus);
	pci_bus_add_devices(root_bus);
	pr_info("fakegpu: %d software-only PCI function(s)\n", count);
	return 0;
}

static void __exit fakegpu_exit(void)
{
	pci_lock_rescan_remove();
	pci_stop_root_bus(root_bus);
	pci_remove_root_bus(root_bus);
	pci_unlock_rescan_remove();
	release_resource(&memory);
}

module_init(fakegpu_init);
module_exit(fakegpu_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("test double: PCI functions that exist in software only");
