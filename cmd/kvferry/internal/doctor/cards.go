package doctor

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// The values that identify the vendor's NPUs in sysfs: Huawei's vendor ID, and the PCI class of processing
// accelerators.
const (
	vendorHuawei     = "0x19e5"
	classAccelerator = "0x1200"
)

// A card is an NPU on the PCI bus.
type card struct {
	bus  string
	node int // NUMA node; -1 if the firmware does not give it
}

// findCards returns the NPUs that the kernel lists, whether or not the process may use them.
func (m Machine) findCards() []card {
	var list []card
	for _, file := range m.globFiles("sys/bus/pci/devices/*/vendor") {
		dir := path.Dir(file)
		if m.readText(file) != vendorHuawei || !strings.HasPrefix(m.readText(dir+"/class"), classAccelerator) {
			continue
		}
		c := card{bus: path.Base(dir), node: -1}
		if node, err := strconv.Atoi(m.readText(dir + "/numa_node")); err == nil {
			c.node = node
		}
		list = append(list, c)
	}
	return list
}

func (c card) numaText() string {
	if c.node < 0 {
		return "NUMA node unknown: sysfs does not give it"
	}
	return fmt.Sprintf("near NUMA node %d", c.node)
}

// commonNode returns the NUMA node of all NPUs, which is then also the node of each device, or -1 if the NPUs differ.
// AscendCL does not report which card a device is.
func commonNode(cards []card) int {
	if len(cards) == 0 || slices.ContainsFunc(cards, func(c card) bool { return c.node != cards[0].node }) {
		return -1
	}
	return cards[0].node
}

// checkPlacement compares the NUMA nodes of this process's cores with the node of the device.
func (m Machine) checkPlacement(s *Section, node int) {
	nodes := m.numaNodes()
	if len(nodes) < 2 {
		s.addOK("numa node", "the machine has only one")
		return
	}
	if node < 0 {
		s.addNote("numa node", "unknown: sysfs and AscendCL do not tell which card this device is",
			"find the NUMA node of the device's Bus-Id (npu-smi info) in this report, and bind the rank: numactl --cpunodebind=N --membind=N")
		return
	}
	own := nodesOf(nodes, m.ownCores())
	if slices.Equal(own, []int{node}) {
		s.addOK("numa node", "%d, where this process runs", node)
		return
	}
	s.addNote("numa node", fmt.Sprintf("%d, and this process runs on %s", node, formatList(own)),
		fmt.Sprintf("numactl --cpunodebind=%d --membind=%d kvferry node ...: copies from pinned memory of a different node are "+
			"slower", node, node))
}

// checkDeviceFiles checks the files that a container needs in addition to its devices.
func (m Machine) checkDeviceFiles(s *Section, cards []card) {
	devices := m.globFiles("dev/davinci[0-9]*")
	if len(cards) == 0 && len(devices) == 0 {
		return
	}
	var missing []string
	for _, file := range []string{"/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"} {
		if !m.exists(file) {
			missing = append(missing, file)
		}
	}
	switch {
	case len(devices) == 0:
		s.addWarning("device files", "none in /dev",
			"load the driver, or give the container its devices: docker --device /dev/davinci0 --device /dev/davinci_manager "+
				"--device /dev/devmm_svm --device /dev/hisi_hdc")
	case len(missing) != 0:
		s.addWarning("device files", "missing: "+strings.Join(missing, ", "),
			"give them to the container: docker --device "+strings.Join(missing, " --device "))
	default:
		s.addOK("device files", "%d devices in /dev, and all files of the driver", len(devices))
	}
}
