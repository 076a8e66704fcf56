package config

import (
	"fmt"
	"slices"
	"strings"
)

// validateAccelerators checks the place of the pool and the channel together. The call precedes every check that
// depends on the data plane.
func (d *draft) validateAccelerators() {
	c := &d.cfg
	if c.Device.Kind == DeviceNPU {
		switch c.Channel {
		case ChannelAuto:
			c.Channel = ChannelHCCL
		case ChannelSHM, ChannelTCP, ChannelNIXL:
			d.addProblemAt("transfer_channel", Conflict,
				fmt.Sprintf("it moves only host memory, and %s is %v; use hccl or auto, or %[1]s: cpu", d.deviceKey(), c.Device))
		case ChannelHCCL:
		}
	}
	if c.Channel == ChannelHCCL {
		d.validateHCCL()
	} else {
		d.resetHCCLKeys()
	}
	if c.Channel == ChannelNIXL {
		d.validateNIXL()
	} else {
		d.noteUnused(nixlKeys, "nixl.", fmt.Sprintf("transfer_channel is %v", c.Channel))
		c.NIXL.Ports = nil
	}
	d.validateGateway()
	if c.HasLeasedPlane() {
		but := []string{checksumKey, keepCorruptKey}
		if !c.NeedsNPU() {
			but = append(but, overcommitKey) // In this case too, the pool is memory of this process.
		}
		d.noteUnused(nodeKeys, "data.", fmt.Sprintf("bytes go over %v", c.Channel), but...)
		c.Data.TCPPorts = nil
	}
	d.validateMemory()
	d.validateChecksums()
	if !c.NeedsNPU() {
		d.addNote(ownPath("npu.library"), "no effect: neither the pool nor the channel is an NPU's")
	}
}

// validateChecksums checks whether the node can compare chunks with checksums.
func (d *draft) validateChecksums() {
	c := &d.cfg
	switch {
	case !c.Data.Checksums:
		if c.Data.KeepCorrupt != "" {
			d.addProblemAt(ownPath(keepCorruptKey), Conflict, "nothing is compared with checksums; set "+checksumKey+": transfer, or "+
				"remove this key")
		}
	case c.PoolDevice().Kind == DeviceNPU:
		d.addProblemAt(ownPath(checksumKey), Unsupported, unsupportedPrefix+"this node cannot read the NPU's memory to sum it; set "+
			d.deviceKey()+": cpu, or "+checksumKey+": off")
	case c.Share.NPU:
		d.addProblemAt(ownPath(checksumKey), Unsupported, unsupportedPrefix+"chunks of peers are brought to the NPU's memory, which "+
			"this node cannot read to sum it; set p2p_use_npu: false, or "+checksumKey+": off")
	}
}

// validateMemory checks the properties of the pool's memory.
func (d *draft) validateMemory() {
	c := &d.cfg
	if c.Pool.HugePages && c.NeedsNPU() {
		c.Pool.HugePages = false
		d.addNote(ownPath(hugeKey), "no effect: the pool is the NPU's memory, or host memory that its library allocates")
	}
	switch {
	case !c.Pool.Lock:
	case c.NeedsNPU():
		c.Pool.Lock = false
		d.addNote(ownPath(lockKey), "no effect: the pool is the NPU's memory, or host memory that its library pins")
	case c.Data.Overcommit:
		d.addProblemAt(ownPath(lockKey), Conflict, "locked memory is allocated when the node opens, and data.overcommit "+
			"allocates later; remove one of the two")
	}
}

// deviceKey returns the key that sets the place of the pool.
func (d *draft) deviceKey() string {
	if d.isGiven(legacyDeviceKey) && !d.isGiven(deviceKey) {
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
		d.addProblemAt(ownPath("hccl.bootstrap"), Conflict,
			fmt.Sprintf("hccl.sequence is %v; write hccl.sequence: exchange, or leave it at rank_table", h.Sequence))
	}
}

// noteUnused adds a note, with the reason why, that a key has no effect, to every key with a name that begins with
// prefix, but not for the keys in except.
func (d *draft) noteUnused(keys []key, prefix, why string, except ...string) {
	for _, k := range keys {
		if strings.HasPrefix(k.name, prefix) && !slices.Contains(except, k.name) {
			d.addNote(ownPath(k.name), "no effect: "+why)
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
		d.addNote(d.deviceKey(), "the pool is host memory, "+reach)
	case c.Offload:
		d.addNote(offloadKey, "the pool is host memory, "+reach)
	}
	if c.Device.Kind == DeviceNPU && c.Device.Index >= 0 && c.RankCount() > 1 {
		d.addNote(d.deviceKey(),
			fmt.Sprintf("each of the %d ranks uses the NPU that it sees as number %d, where LMCache would replace the number "+
				"by the rank; write npu to give each its own", c.RankCount(), c.Device.Index))
	}
}

// resetHCCLKeys resets the keys of HCCL on a node without that plane, so that their lists are not counted.
func (d *draft) resetHCCLKeys() {
	d.noteUnused(npuKeys, "hccl.", fmt.Sprintf("transfer_channel is %v", d.cfg.Channel))
	h := &d.cfg.HCCL
	h.DeviceIPs, h.DevicePorts, h.Ports = nil, nil, nil
}
