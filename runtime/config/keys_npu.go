package config

import (
	"net/netip"
	"time"
)

// npuKeys are kvferry's own keys for Ascend NPUs, below extra_config.kvferry like nodeKeys.
var npuKeys = []key{
	{name: "npu.library", kind: pathKind(libraryLenMax, func(d *draft) *string { return &d.cfg.NPU.Library }),
		doc: "the path of AscendCL, if it is not where CANN installs it; if unset, the variable `KVFERRY_ASCENDCL`, or else " +
			"a search"},

	{name: "hccl.library", kind: pathKind(libraryLenMax, func(d *draft) *string { return &d.cfg.HCCL.Library }),
		doc: "the path of HCCL, if it is not where CANN installs it; if unset, the variable `KVFERRY_HCCL`, or else a search"},
	{name: "hccl.sequence", kind: wordKind(func(d *draft) *Sequence { return &d.cfg.HCCL.Sequence },
		[]choice[Sequence]{{"auto", SequenceAuto}, {"global", SequenceGlobal}, {"exchange", SequenceExchange}}, 0, nil),
		def: "auto",
		doc: "how a peer gets access to memory: `global` registers the memory once, `exchange` with every communicator, as " +
			"older releases of CANN do; `auto` uses `global` if the library supports it"},
	{name: "hccl.bootstrap", kind: wordKind(func(d *draft) *Bootstrap { return &d.cfg.HCCL.Bootstrap },
		[]choice[Bootstrap]{{"rank_table", BootstrapRankTable}, {"root_info", BootstrapRootInfo}}, 0, nil),
		def: "rank_table",
		doc: "how both ends of a communicator exchange their addresses; `root_info` needs `hccl.sequence: exchange`"},
	{name: "hccl.server_id", kind: labelKind(64, func(d *draft) *string { return &d.cfg.HCCL.ServerID }),
		doc: "this host's name in rank tables, one for all nodes of the host; derived from the host if unset"},
	{name: "hccl.device_ip", kind: addressesKind(func(d *draft) *[]netip.Addr { return &d.cfg.HCCL.DeviceIPs }),
		doc: "the RoCE address of each rank's NPU; looked for in `/etc/hccn.conf` if unset"},
	{name: "hccl.device_port", kind: portsKind(func(d *draft) *[]uint16 { return &d.cfg.HCCL.DevicePorts }),
		doc: "the port on each rank's NPU; processes that share an NPU need different ports; 16666 if unset"},
	{name: "hccl.host", kind: hostKind(func(d *draft) *string { return &d.cfg.HCCL.Host }),
		doc: "where the HCCL plane's own TCP channel listens, and what it advertises; `pd_peer_host` if unset"},
	{name: "hccl.port", kind: portsKind(func(d *draft) *[]uint16 { return &d.cfg.HCCL.Ports }),
		doc: "the port of that channel; chosen by the system if unset"},
	{name: "hccl.rdma_timeout", kind: integerKind(5, 20, func(d *draft) *uint32 { return &d.cfg.HCCL.RDMATimeout }), def: "15",
		doc: "one try of the NIC lasts 4.096 µs × 2^n for the value n; the variable `HCCL_RDMA_TIMEOUT` overrides it. With " +
			"15 and 7 retries, pages are safe 1.1 s after a lost link; with HCCL's own default of 20, after 34 s"},
	{name: "hccl.rdma_retry_cnt", kind: integerKind(1, 7, func(d *draft) *uint32 { return &d.cfg.HCCL.RDMARetries }), def: "7",
		doc: "tries after the first; the variable `HCCL_RDMA_RETRY_CNT` overrides it"},
	{name: "hccl.traffic_class", kind: trafficClassKind(func(d *draft) *uint32 { return &d.cfg.HCCL.TrafficClass }),
		doc: "RoCE's traffic class; left to HCCL (`HCCL_RDMA_TC`, else 132) if unset"},
	{name: "hccl.service_level", kind: integerKind(0, 7, func(d *draft) *uint32 { return &d.cfg.HCCL.ServiceLevel }), derived: true,
		doc: "RoCE's service level; left to HCCL (`HCCL_RDMA_SL`, else 4) if unset"},
	{name: "hccl.transfer_timeout",
		kind: durationKind(0, time.Hour, func(d *draft) *time.Duration { return &d.cfg.HCCL.TransferTimeout }), def: "0",
		doc: "how long one batch of a transfer may take before its communicator is given up; 0 derives the time from the " +
			"NIC's tries, and is at least 3 s"},
	{name: "hccl.prepare_timeout",
		kind: durationKind(time.Second, time.Hour, func(d *draft) *time.Duration { return &d.cfg.HCCL.PrepareTimeout }),
		def:  "10",
		doc:  "the time limit for each of the three phases of connecting a communicator, in whole seconds"},
	{name: "hccl.rebuild_tries", kind: integerKind(1, 100, func(d *draft) *uint32 { return &d.cfg.HCCL.RebuildTries }),
		def: "3",
		doc: "how many times in a row the rebuild of a communicator may fail before its link is lost"},
	{name: "hccl.window", kind: integerKind(1, 64, func(d *draft) *uint32 { return &d.cfg.HCCL.Window }), def: "2",
		doc: "batches of one link in flight"},
	{name: "hccl.descriptors", kind: integerKind(1, 256, func(d *draft) *uint32 { return &d.cfg.HCCL.Descriptors }),
		def: "256",
		doc: "runs of adjacent pages in one batch; fewer where the chip takes fewer"},
	{name: "hccl.links", kind: integerKind(1, 512, func(d *draft) *uint32 { return &d.cfg.HCCL.Links }), def: "64",
		doc: "the maximum number of peers, each with a communicator and a stream"},
}

// libraryLenMax bounds the length of a path. The bound is much longer than any path that an installer chooses.
const libraryLenMax = 1024

// The keys of values that each rank needs for itself on an NPU.
var (
	hcclPortKey   = ownPath("hccl.port")
	deviceIPKey   = ownPath("hccl.device_ip")
	devicePortKey = ownPath("hccl.device_port")
)
