package doctor

import (
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/runtime/config"
)

// checkPools compares the host memory that all ranks take with the memory of the machine and of the container.
func (m Machine) checkPools(s *Section, c *config.Config) {
	if c.PoolDevice().Kind != config.DeviceCPU {
		return
	}
	ranks, each := uint64(max(1, c.RankCount())), c.BufferBytes+uint64(c.ArenaPages)*c.PageBytes
	value := formatSize(each)
	if ranks > 1 {
		value = fmt.Sprintf("%d ranks of %s", ranks, value)
	}
	need, limit := ranks*each, m.cgroupLimits().memory
	total, known := m.readKilobytes(meminfo, "MemTotal")
	available, _ := m.readKilobytes(meminfo, "MemAvailable")
	fewer := "make " + c.PoolKey() + " smaller, or list fewer ranks for this host"
	switch {
	case limit != 0 && need > limit:
		s.addProblem("pools", value+", but the container has only "+formatSize(limit), "raise the container's memory limit, or "+fewer)
	case known && need > total:
		s.addProblem("pools", value+", but the machine has only "+formatSize(total), fewer)
	case known && need > available:
		s.addWarning("pools", value+", but only "+formatSize(available)+" are available now", "free memory first, or "+fewer)
	default:
		s.addOK("pools", "%s of host memory", value)
	}
}

// ranksOn returns the ranks that use a device.
func ranksOn(c *config.Config, n NPUs, device int) (ranks []int) {
	for rank := range max(1, c.RankCount()) {
		if c.Device.NPUIndex(rank, len(n.Devices)) == device {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// checkDevicePools compares the pools of the ranks with the memory of their devices.
func checkDevicePools(s *Section, c *config.Config, n NPUs) {
	if device := c.Device.NPUIndex(0, len(n.Devices)); device >= len(n.Devices) {
		s.addProblem("pd_buffer_device", fmt.Sprintf("%v, and %s", c.Device, formatCount(len(n.Devices), "visible device")),
			"name a visible device; ASCEND_RT_VISIBLE_DEVICES numbers them from 0")
		return
	}
	each, key := c.Share.NPUBytes, "p2p_npu_buffer_size"
	if c.PoolDevice().Kind == config.DeviceNPU {
		each, key = c.BufferBytes, c.PoolKey()
	}
	if each == 0 {
		return
	}
	for _, d := range n.Devices {
		ranks := ranksOn(c, n, d.ID)
		if len(ranks) == 0 || d.Err != nil { // the device's section reports the failure
			continue
		}
		name, value := fmt.Sprintf("pool on npu %d", d.ID), formatSize(each)
		if len(ranks) > 1 {
			value = fmt.Sprintf("%d ranks of %s", len(ranks), value)
		}
		switch need := uint64(len(ranks)) * each; {
		case need > d.Total:
			s.addProblem(name, value+", but the device has only "+formatSize(d.Total), "make "+key+" smaller, or use one device for each rank")
		case need > d.Free:
			s.addWarning(name, value+", but only "+formatSize(d.Free)+" are free now",
				"make "+key+" smaller, or reduce the engine's memory: both use that device")
		default:
			s.addOK(name, "%s, and %s are free", value, formatSize(d.Free))
		}
	}
}

// checkDeviceAddresses checks whether each rank has an address and a port of its own on its NPU. Package config cannot
// check this, because the addresses may be in /etc/hccn.conf.
func (m Machine) checkDeviceAddresses(s *Section, c *config.Config, n NPUs) {
	if c.HCCL.Bootstrap != config.BootstrapRankTable {
		return
	}
	taken := map[string]int{}
	var all []string
	for rank := range max(1, c.RankCount()) {
		ip, _ := c.DeviceIP(rank)
		address := ip.String()
		if device := c.Device.NPUIndex(rank, len(n.Devices)); !ip.IsValid() {
			if device >= len(n.Devices) {
				return // checkDevicePools reports this problem
			}
			if address = m.hccnAddress(n.Devices[device].Physical); address == "" {
				s.addProblem("hccl.device_ip", fmt.Sprintf("rank %d has no address, and /etc/hccn.conf has no address for npu %d", rank, device),
					"list the RoCE addresses of the ranks' NPUs in hccl.device_ip (hccn_tool -i N -ip -g), or mount /etc/hccn.conf "+
						"into the container")
				continue
			}
		}
		port, _ := c.DevicePort(rank)
		at := fmt.Sprintf("%s port %d", address, port)
		if other, twice := taken[at]; twice {
			s.addProblem("hccl.device_port", fmt.Sprintf("ranks %d and %d have the same address and port, %s", other, rank, at),
				"list a port for each rank in hccl.device_port")
			continue
		}
		taken[at] = rank
		all = append(all, at)
	}
	if len(all) > 0 {
		s.addOK("addresses on npus", "%s", strings.Join(all, ", "))
	}
}
