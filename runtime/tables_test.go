package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/device"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A pool of absurd size is refused before anything is made whose size follows its: not even a device is asked, nor
// does it help that memory is taken late.
func TestTablesOfAbsurdPoolsAreRefused(t *testing.T) {
	const layout = "layout: {num_layers: 2, num_kv_heads: 1, head_size: 8, dtype: half}"
	const npu = "pd_buffer_device: npu\npd_buffer_size: "
	nobody := func(control.Env) (control.Transport, error) { return nil, errors.New("nobody was to be asked") }
	noDevice := func(context.Context, device.Env) (device.Device, error) {
		return nil, errors.New("no device was to be asked")
	}
	noPlane := func(context.Context, plane.Env) (plane.Plane, error) {
		return nil, errors.New("no plane was to be asked")
	}
	for _, c := range []struct {
		name, more, own, key string
		options              []Option
	}{
		{"overcommit", "pd_buffer_device: cpu\npd_buffer_size: 2047GiB\n", ", data: {overcommit: true}",
			"pd_buffer_size", nil},
		{"a device", npu + "2047GiB\n", "", "pd_buffer_size", []Option{WithDevice(noDevice)}},
		{"offload", npu + "1MiB\npd_pull_mode: true\npd_peer_host: 127.0.0.1\npd_pull_done_port: 1\n" +
			"pd_use_cpu_offload: true\npd_cpu_buffer_size: 2047GiB\n", "", "pd_cpu_buffer_size", []Option{WithDevice(noDevice)}},
	} {
		text := fmt.Sprintf("enable_pd: true\npd_role: sender\nchunk_size: 16\npd_skip_proxy_notification: true\n%s"+
			"extra_config: {kvferry: {%s%s}}\n", c.more, layout, c.own)
		cfg, err := config.Parse("test", []byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		var before, after goruntime.MemStats
		goruntime.ReadMemStats(&before)
		_, err = Open(t.Context(), cfg, append(c.options, WithControl(nobody), WithPlane(cfg.Channel.String(), noPlane))...)
		goruntime.ReadMemStats(&after)
		if CodeOf(err) != effects.NoMemory || !strings.Contains(err.Error(), c.key+" smaller") ||
			!strings.Contains(err.Error(), "tables") {
			t.Errorf("%s: %v", c.name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
			t.Errorf("%s: %d bytes were taken first", c.name, took)
		}
	}
}

// What is looked at before is what the tables take: no less than half of it, and no more.
func TestTableBytes(t *testing.T) {
	const pages = 1 << 20
	layout := protocol.Layout{Format: protocol.FormatKV2LTD, Dtype: protocol.DtypeHalf,
		Shape: protocol.Shape{Dims: [4]uint32{2, 1, 4, 2}, N: 4}}
	made := func(n uint32) uint64 {
		var before, after goruntime.MemStats
		goruntime.ReadMemStats(&before)
		for range 2 {
			if _, err := rank.New(rank.Config{
				Role: rank.RoleReceiver, Planes: []rank.Plane{{Name: "shm", Blob: bytes.Repeat([]byte{1}, 3)}},
				Common: rank.Common{Layout: layout},
				Memory: rank.Memory{Pages: n},
				Peers:  rank.Peers{LocalID: "me"},
			}, 1, 1); err != nil {
				t.Fatal(err)
			}
		}
		p, err := plane.NewPool(plane.PoolConfig{Pages: n, PageBytes: 1, Sink: newMailbox(1, 1), Overcommit: true})
		if err != nil {
			t.Fatal(err)
		}
		goruntime.ReadMemStats(&after)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		return after.TotalAlloc - before.TotalAlloc + 12*uint64(n) // Generations and read permits are in files.
	}
	each := (made(pages) - made(1)) / (pages - 1)
	if each > tableBytes || each < tableBytes/2 {
		t.Errorf("the tables of a page take %d bytes; %d are looked for", each, tableBytes)
	}
}

// The bounds of the configuration that are a plane's reach it.
func TestBoundsReachThePlanes(t *testing.T) {
	cfg, err := config.Parse("test", []byte("enable_pd: true\npd_role: sender\nchunk_size: 16\npd_buffer_size: 1MiB\n"+
		"pd_buffer_device: cpu\npd_skip_proxy_notification: true\nextra_config: {kvferry: {tables: {peers: 12, "+
		"strangers: 5, commands: 2000}, layout: {num_layers: 2, num_kv_heads: 1, head_size: 8, dtype: half}}}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got plane.Bounds
	none := errors.New("none")
	_, err = Open(t.Context(), cfg, WithControl(zmq.Config{}.Opener()),
		WithPlane("shm", func(_ context.Context, env plane.Env) (plane.Plane, error) { got = env.Bounds; return nil, none }))
	if !errors.Is(err, none) {
		t.Fatal(err)
	}
	if got.Links != 12 || got.Strangers != 5 || got.Transfers != 2000 {
		t.Errorf("a plane is told %+v", got)
	}
}
