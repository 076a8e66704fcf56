package config

import (
	"fmt"
	"slices"
	"strings"
)

// validatePlacing checks the place of the pool and the channel together. The call precedes every check that depends on
// the data plane.
func (d *draft) validatePlacing() {
	c := &d.cfg
	if c.Device.Kind == DeviceNPU {
		switch c.Channel {
		case ChannelAuto:
			c.Channel = ChannelHCCL
		case ChannelSHM, ChannelTCP, ChannelNIXL:
			d.at("transfer_channel", Conflict,
				fmt.Sprintf("it moves memory of the host, and %s is %v; use hccl or auto, or %[1]s: cpu", d.deviceKey(), c.Device))
		case ChannelHCCL:
		}
	}
	if c.Channel == ChannelHCCL {
		d.validateHCCL()
	} else {
		d.forgetHCCL()
	}
	if c.Channel == ChannelNIXL {
		d.validateNIXL()
	} else {
		d.forget(nixlKeys, "nixl.", fmt.Sprintf("transfer_channel is %v", c.Channel))
		c.NIXL.Ports = nil
	}
	d.validateGateway()
	if c.Leased() {
		var but []string
		if !c.NeedsNPU() {
			but = append(but, overcommitKey) // In this case too, the pool is memory of this process.
		}
		d.forget(nodeKeys, "data.", fmt.Sprintf("bytes go over %v", c.Channel), but...)
		c.Data.TCPPorts = nil
	}
	d.validateMemory()
	if !c.NeedsNPU() {
		d.note(ownPath("npu.library"), "no effect: neither the pool nor the channel is an NPU's")
	}
}

// validateMemory checks the properties of the pool's memory.
func (d *draft) validateMemory() {
	c := &d.cfg
	if c.Pool.HugePages && c.NeedsNPU() {
		c.Pool.HugePages = false
		d.note(ownPath(hugeKey), "no effect: the pool is the NPU's memory, or host memory that its library takes")
	}
	switch {
	case !c.Pool.Lock:
	case c.NeedsNPU():
		c.Pool.Lock = false
		d.note(ownPath(lockKey), "no effect: the pool is the NPU's memory, or host memory that its library pins")
	case c.Data.Overcommit:
		d.at(ownPath(lockKey), Conflict, "what is locked is taken when the node opens, and data.overcommit takes it later; "+
			"remove one of the two")
	}
}

// deviceKey returns the key that sets the place of the pool.
func (d *draft) deviceKey() string {
	if d.given(legacyDeviceKey) && !d.given(deviceKey) {
		return legacyDeviceKey
	}
	return deviceKey
}

func (d *draft) validateHCCL() {
	h := &d.cfg.HCCL
	if h.Host == "" {
		h.Host = d.cfg.PeerHost
	}
	if h.Bootstrap == BootstrapRootInfo && h.Sequence != SequenceExchange {
		d.at(ownPath("hccl.bootstrap"), Conflict,
			fmt.Sprintf("hccl.sequence is %v; write hccl.sequence: exchange, or leave it at rank_table", h.Sequence))
	}
}

// forget adds a note, with the reason why, that a key has no effect, to every key with a name that begins with prefix,
// except for the keys in but.
func (d *draft) forget(keys []key, prefix, why string, but ...string) {
	for _, k := range keys {
		if strings.HasPrefix(k.name, prefix) && !slices.Contains(but, k.name) {
			d.note(ownPath(k.name), "no effect: "+why)
		}
	}
}

// noteNPU adds notes about settings that do not work on every machine. Only the pool that peers write to or read from
// must be in reach of HCCS; each peer's own NPU accesses the pool of that peer.
func (d *draft) noteNPU() {
	c := &d.cfg
	if c.Channel != ChannelHCCL {
		return
	}
	const reach = "which HCCS does not reach: peers need RoCE; between NPUs of one host or super pod set " +
		"HCCL_INTRA_ROCE_ENABLE=1"
	serves := c.Role.Sends() && c.Pull.Enabled || c.Role.Receives() && !c.Pull.Enabled
	switch {
	case c.Device.Kind == DeviceCPU && serves:
		d.note(d.deviceKey(), "the pool is host memory, "+reach)
	case c.Offload:
		d.note(offloadKey, "the pool is host memory, "+reach)
	}
	if c.Device.Kind == DeviceNPU && c.Device.Index >= 0 && c.Ranks() > 1 {
		d.note(d.deviceKey(),
			fmt.Sprintf("each of the %d ranks uses the NPU that it sees as number %d, where LMCache would replace the number "+
				"by the rank; write npu to give each its own", c.Ranks(), c.Device.Index))
	}
}

// forgetHCCL resets the keys of HCCL on a node without that plane, so that their lists are not counted.
func (d *draft) forgetHCCL() {
	d.forget(npuKeys, "hccl.", fmt.Sprintf("transfer_channel is %v", d.cfg.Channel))
	h := &d.cfg.HCCL
	h.DeviceIPs, h.DevicePorts, h.Ports = nil, nil, nil
}
