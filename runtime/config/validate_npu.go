package config

import (
	"fmt"
	"strings"
)

// validatePlacing checks what the pool's place and the channel say together. It comes before everything that asks by
// which plane bytes move.
func (d *draft) validatePlacing() {
	c := &d.cfg
	if c.Device.Kind == DeviceNPU {
		switch c.Channel {
		case ChannelAuto:
			c.Channel = ChannelHCCL
		case ChannelSHM, ChannelTCP:
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
	if !c.NeedsNPU() {
		d.note(ownPath("npu.library"), "no effect: neither the pool nor the channel is an NPU's")
	}
}

// deviceKey is the key that says where the pool lies.
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
	for _, k := range nodeKeys {
		if strings.HasPrefix(k.name, "data.") {
			d.note(ownPath(k.name), "no effect: bytes go over hccl")
		}
	}
	d.cfg.Data.TCPPorts = nil
}

// noteNPU tells of what runs and not everywhere. Only the pool that peers write to or read from must be in reach of
// HCCS: the other end's is its own NPU's to access.
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
		d.note("pd_use_cpu_offload", "chunks are offered from host memory, "+reach)
	}
	if c.Device.Kind == DeviceNPU && c.Device.Index >= 0 && c.Ranks() > 1 {
		d.note(d.deviceKey(),
			fmt.Sprintf("each of the %d ranks uses the NPU that it sees as number %d, where LMCache would replace the number "+
				"by the rank; write npu to give each its own", c.Ranks(), c.Device.Index))
	}
}

// forgetHCCL drops the keys of a plane that the node has not, so that their lists count for nothing.
func (d *draft) forgetHCCL() {
	for _, k := range npuKeys {
		if strings.HasPrefix(k.name, "hccl.") {
			d.note(ownPath(k.name), fmt.Sprintf("no effect: transfer_channel is %v", d.cfg.Channel))
		}
	}
	h := &d.cfg.HCCL
	h.DeviceIPs, h.DevicePorts, h.Ports = nil, nil, nil
}
