package config

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/kvferry/kvferry/protocol"
)

const npuReceiverYAML = `
enable_pd: true
pd_role: receiver
pd_peer_host: 10.0.0.2
pd_peer_init_port: [7300, 7301]
pd_peer_alloc_port: [7400, 7401]
pd_buffer_size: 1207959552
pd_buffer_device: npu
`

func TestNPUDefaults(t *testing.T) {
	c := mustParse(t, npuReceiverYAML)
	if c.Channel != ChannelHCCL || c.Device != (Device{DeviceNPU, -1}) || !c.NeedsNPU() || len(c.Notes) > 0 {
		t.Errorf("got channel %v, device %v, needs an NPU %t, notes %v", c.Channel, c.Device, c.NeedsNPU(), c.Notes)
	}
	want := HCCL{Host: "10.0.0.2", RDMATimeout: 15, RDMARetries: 7, TrafficClass: HCCLDefault, ServiceLevel: HCCLDefault,
		PrepareTimeout: 10 * time.Second, RebuildTries: 3, Window: 2, Descriptors: 256, Links: 64}
	if !reflect.DeepEqual(c.HCCL, want) {
		t.Errorf("got %+v, want %+v", c.HCCL, want)
	}
	for rank, served := range map[int]bool{0: true, 1: true, -1: false} {
		if e, is := c.HCCLEndpoint(rank); is != served || e != (protocol.Endpoint{Host: "10.0.0.2"}) {
			t.Errorf("rank %d: channel at %v, %t", rank, e, is)
		}
		if ip, is := c.DeviceIP(rank); is != served || ip.IsValid() {
			t.Errorf("rank %d: NPU at %v, %t", rank, ip, is)
		}
		if port, is := c.DevicePort(rank); is != served || port != DevicePortDefault {
			t.Errorf("rank %d: NPU's port %d, %t", rank, port, is)
		}
	}
}

func TestNPUKeys(t *testing.T) {
	c := mustParse(t, npuReceiverYAML+`
extra_config:
  kvferry:
    npu: {library: /opt/libascendcl.so}
    hccl:
      library: /opt/libhccl.so
      sequence: exchange
      bootstrap: root_info
      server_id: rack-7:node-2
      device_ip: [192.168.1.10, "::ffff:192.168.1.11"]
      device_port: 16666, 16667
      host: "[fd00::2]"
      port: [7600, 7601]
      rdma_timeout: 14
      rdma_retry_cnt: 3
      traffic_class: 0
      service_level: 7
      transfer_timeout: 750ms
      prepare_timeout: 20
      rebuild_tries: 5
      window: 4
      descriptors: 64
      links: 512
`)
	ips := []netip.Addr{netip.MustParseAddr("192.168.1.10"), netip.MustParseAddr("192.168.1.11")}
	want := HCCL{Library: "/opt/libhccl.so", Sequence: SequenceExchange, Bootstrap: BootstrapRootInfo,
		ServerID:  "rack-7:node-2",
		DeviceIPs: ips, DevicePorts: []uint16{16666, 16667}, Host: "fd00::2", Ports: []uint16{7600, 7601}, RDMATimeout: 14,
		RDMARetries:  3,
		TrafficClass: 0, ServiceLevel: 7, TransferTimeout: 750 * time.Millisecond, PrepareTimeout: 20 * time.Second,
		RebuildTries: 5,
		Window:       4, Descriptors: 64, Links: 512}
	if !reflect.DeepEqual(c.HCCL, want) || c.NPU != (NPU{Library: "/opt/libascendcl.so"}) {
		t.Errorf("got %+v, %+v, want %+v", c.NPU, c.HCCL, want)
	}
	if e, served := c.HCCLEndpoint(1); !served || e != (protocol.Endpoint{Host: "fd00::2", Port: 7601}) {
		t.Errorf("channel at %v, %t", e, served)
	}
	if ip, served := c.DeviceIP(1); !served || ip != ips[1] {
		t.Errorf("NPU at %v, %t", ip, served)
	}
	if port, served := c.DevicePort(1); !served || port != 16667 {
		t.Errorf("NPU's port %d, %t", port, served)
	}
	for _, rank := range []int{-1, 2} {
		_, channel := c.HCCLEndpoint(rank)
		_, ip := c.DeviceIP(rank)
		_, port := c.DevicePort(rank)
		if channel || ip || port {
			t.Errorf("rank %d is served: channel %t, address %t, port %t", rank, channel, ip, port)
		}
	}
}

// Which NPU a rank uses. Without a number it is the one that LMCache-Ascend gives to the engine of that rank.
func TestDeviceOfARank(t *testing.T) {
	for _, c := range []struct {
		written             string
		rank, visible, want int
	}{
		{"npu", 0, 8, 0}, {"npu", 7, 8, 7}, {"npu", 9, 8, 1}, {"npu", 3, 1, 0}, {"npu", 3, 0, 3},
		{"npu:0", 3, 8, 0}, {"npu:7", 1, 8, 7}, {"npu:12", 1, 8, 12},
		{"cpu", 3, 8, 3}, {"cpu", 9, 8, 1},
	} {
		d := mustParse(t, replaced(npuReceiverYAML, "pd_buffer_device: "+c.written+"\n")).Device
		if got := d.NPUIndex(c.rank, c.visible); got != c.want || d.String() != c.written {
			t.Errorf("%s: rank %d of %d visible uses %v number %d, want %d", c.written, c.rank, c.visible, d, got, c.want)
		}
	}
}

// The words of a file are the words of its report.
func TestWordsOfNPUKeys(t *testing.T) {
	for got, want := range map[string]string{
		ChannelHCCL.String(): "hccl", SequenceAuto.String(): "auto", SequenceGlobal.String(): "global",
		SequenceExchange.String():   "exchange",
		BootstrapRankTable.String(): "rank_table", BootstrapRootInfo.String(): "root_info", DeviceCPU.String(): "cpu",
		DeviceNPU.String():   "npu",
		Sequence(9).String(): "sequence(9)", Bootstrap(9).String(): "bootstrap(9)", DeviceKind(9).String(): "device(9)",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
