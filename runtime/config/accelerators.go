package config

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// This file reads the two keys that name accelerators: the place of the pages, and the channel that moves the bytes.

const deviceWords = "cpu, npu, npu with a number as in npu:0, or cuda"

func readDevice(d *draft, n *yaml.Node) (Code, string) {
	s, isScalar := scalarText(n)
	if !isScalar {
		return Type, "write one word: " + deviceWords
	}
	name, number, numbered := strings.Cut(s, ":")
	index, isIndex := deviceIndex(number)
	switch {
	case s == "cpu":
		return codeOK, ""
	case name == "npu" && !numbered:
		d.cfg.Device, d.onAccelerator = Device{DeviceNPU, -1}, true
		return codeOK, ""
	case name == "npu" && isIndex:
		d.cfg.Device, d.onAccelerator = Device{DeviceNPU, index}, true
		return codeOK, ""
	case name == "cuda" && (!numbered || isIndex):
		d.onAccelerator = true
		return Note, "this build has no driver for such memory: the pool lies in host memory, as with cpu"
	}
	return Range, "use " + deviceWords
}

// readLegacyDevice reads nixl_buffer_device. The key sets the place of the pool only in files that are older than
// pd_buffer_device. If both keys are given, nixl_buffer_device belongs to LMCache's storage.
func readLegacyDevice(d *draft, n *yaml.Node) (Code, string) {
	if d.isGiven(deviceKey) {
		return codeOK, ""
	}
	return readDevice(d, n)
}

func deviceIndex(s string) (index int, isIndex bool) {
	const digitsMax = 4
	index, err := strconv.Atoi(s)
	return index, err == nil && len(s) <= digitsMax && strings.Trim(s, "0123456789") == ""
}

var channelKind = kind{takes: channelWords.takes, read: readChannel}

var channelWords = wordKind(func(d *draft) *Channel { return &d.cfg.Channel },
	[]choice[Channel]{{"auto", ChannelAuto}, {"shm", ChannelSHM}, {"tcp", ChannelTCP}, {"hccl", ChannelHCCL},
		{"nixl", ChannelNIXL}}, Note,
	unsupportedChannelNote)

// readChannel reads the channel. The additional words that LMCache-Ascend has for the links between NPUs are accepted
// as well.
func readChannel(d *draft, n *yaml.Node) (Code, string) {
	if s, isScalar := scalarText(n); isScalar && (s == "hixl" || s == "hcomm_onesided") {
		d.cfg.Channel = ChannelHCCL
		return Note, "the same as hccl: there is one plane over the links between NPUs, and it uses the same libraries"
	}
	return channelWords.read(d, n)
}

// unsupportedChannelNote explains the effect of a channel that LMCache has and this build does not have. The file is
// accepted all the same, because the handshake and not this key determines the plane that carries the bytes.
func unsupportedChannelNote(word string) string {
	const instead = "; bytes go as with auto: over shared memory where both nodes are on one host, else over TCP, and " +
		"between NPUs over hccl"
	switch word {
	case "mooncake":
		return "this build has no " + word + " plane" + instead
	case "mock_memory", "mock":
		return "here bytes are really transferred" + instead
	}
	return ""
}
