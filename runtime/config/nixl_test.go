package config

import (
	"reflect"
	"testing"
	"time"

	"github.com/kvferry/kvferry/protocol"
)

func TestNIXLDefaults(t *testing.T) {
	c := mustParse(t, replaced(receiverYAML,
		"transfer_channel: nixl\nextra_config: {kvferry: {tables: {peers: 60}, nixl: {trusted_network: true}}}\n"))
	want := NIXL{ProcessTimeout: 10 * time.Second, Host: "10.0.0.2", TrustedNetwork: true,
		TransferTimeout: 10 * time.Second, CancelGrace: 200 * time.Millisecond,
		PrepareTimeout: 10 * time.Second, RebuildTries: 3, Window: 2, Descriptors: 1024, BatchBytes: 16 << 20, Links: 60}
	if c.Channel != ChannelNIXL || !c.HasLeasedPlane() || c.NeedsNPU() || !reflect.DeepEqual(c.NIXL, want) {
		t.Errorf("got channel %v, leased %t, NPU %t, %+v; want %+v", c.Channel, c.HasLeasedPlane(), c.NeedsNPU(), c.NIXL, want)
	}
	for rank, served := range map[int]bool{0: true, 1: true, -1: false} {
		if e, is := c.NIXLEndpoint(rank); is != served || e != (protocol.Endpoint{Host: "10.0.0.2"}) {
			t.Errorf("rank %d: channel at %v, %t", rank, e, is)
		}
	}
}

func TestNIXLPorts(t *testing.T) {
	c := mustParse(t, replaced(receiverYAML,
		"transfer_channel: nixl\nextra_config: {kvferry: {nixl: {port: [7601, 7602], host: 10.1.0.2, "+
			"trusted_network: true}}}\n"))
	for rank, want := range map[int]protocol.Endpoint{0: {Host: "10.1.0.2", Port: 7601}, 1: {Host: "10.1.0.2", Port: 7602},
		2: {}} {
		if e, is := c.NIXLEndpoint(rank); is != (rank < 2) || e != want {
			t.Errorf("rank %d: channel at %v, %t", rank, e, is)
		}
	}
}
