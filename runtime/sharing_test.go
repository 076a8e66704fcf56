package runtime_test

import (
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/directory"
)

const sharerText = `enable_p2p: true
p2p_host: 127.0.0.1
p2p_init_ports: [1]
p2p_lookup_ports: [2]
p2p_pull_mode: true
transfer_channel: %s
chunk_size: 16
pd_buffer_size: %d
pd_buffer_device: cpu
pd_shutdown_timeout_sec: 60
%sextra_config:
  p2p_sync_get_timeout_s: 30
  p2p_lookup_timeout_s: 20
  kvferry:
    layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}
    engine_share_pct: 100
    peer_share_pct: 100
`

// startDirectory serves one set of ports, which the system chooses.
func startDirectory(t *testing.T) (*directory.Directory, config.MonitorPorts) {
	t.Helper()
	cfg, err := config.ParseDirectory("directory", []byte(
		"controller_host: 127.0.0.1\ncontroller_monitor_ports: {pull: 1, reply: 2, heartbeat: 3}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Monitors[0] = config.MonitorPorts{HasHeartbeat: true}
	d, err := directory.Open(cfg, zmq.Config{}.Opener(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(within(t)) })
	return d, d.Ports()[0]
}

// sharerConfig shares where the system likes, and tells the directory at these ports, if there is one.
func sharerConfig(tb testing.TB, channel, instance string, at config.MonitorPorts) *config.Config {
	tb.Helper()
	cfg, err := config.Parse("test", fmt.Appendf(nil, sharerText, channel, 8*pageBytes, directoryKeys(instance, at)), nil)
	if err != nil {
		tb.Fatal(err)
	}
	cfg.InitPorts[0], cfg.Share.LookupPorts[0] = 0, 0
	return cfg
}

// directoryKeys are the keys of a node that tells the directory at these ports, if there is one.
func directoryKeys(instance string, at config.MonitorPorts) string {
	if at.Pull == 0 {
		return ""
	}
	return fmt.Sprintf("enable_controller: true\nlmcache_instance_id: %s\nlmcache_worker_ports: [9]\n"+
		"controller_pull_url: 127.0.0.1:%d\ncontroller_reply_url: 127.0.0.1:%d\n", instance, at.Pull, at.Reply)
}

// mustStore has a node store chunks of its engine's.
func mustStore(tb testing.TB, n *runtime.Node, keys []string) {
	tb.Helper()
	pages, err := n.Sharing().Reserve(within(tb), len(keys))
	if err != nil {
		tb.Fatal(err)
	}
	fill(tb, pages, keys)
	if err := n.Sharing().Store(within(tb), keys, pages, 0); err != nil {
		tb.Fatal(err)
	}
	mustRelease(tb, pages)
}

// awaitLocations waits until directories name who has so many of these chunks.
func awaitLocations(t *testing.T, n *runtime.Node, keys []string, hits int) {
	t.Helper()
	for ctx := within(t); ; {
		_, remote, err := n.Sharing().Lookup(ctx, keys)
		if err == nil && remote == hits {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("a directory knows of %d chunks, want %d: %v", remote, hits, err)
		}
	}
}

// wantShared gets chunks, checks each byte of those that come, and that so many do.
func wantShared(t *testing.T, n *runtime.Node, keys []string, hits int) {
	t.Helper()
	got, err := n.Sharing().Get(within(t), runtime.SharedGet{Request: "r", Keys: keys})
	want := effects.OK
	if hits < len(keys) {
		want = effects.NotFound
	}
	if runtime.CodeOf(err) != want {
		t.Errorf("the get ends as %v, want %v", err, want)
	}
	wantContent(t, got, keys[:hits], pageBytes)
	mustRelease(t, got)
}

// What one node has stored another one gets, over either plane, read or written: found by a real directory, byte by
// byte. What nobody has ends the prefix. When the directory is gone that is a miss, and what is here is still had.
func TestSharing(t *testing.T) {
	for _, is := range []struct {
		channel string
		pull    bool
	}{{"shm", true}, {"tcp", true}, {"shm", false}, {"tcp", false}} {
		t.Run(fmt.Sprintf("%s, read: %t", is.channel, is.pull), func(t *testing.T) {
			d, at := startDirectory(t)
			owner, cfg := open(t, sharerConfig(t, is.channel, "a", at)), sharerConfig(t, is.channel, "b", at)
			cfg.Share.Pull = is.pull
			reader := open(t, cfg)
			keys := keysOf("shared", 4)
			mustStore(t, owner, keys[:3])
			awaitLocations(t, reader, keys, 3)
			wantShared(t, reader, keys, 3)
			if local, remote, err := reader.Sharing().Lookup(within(t), keys); local != 3 || remote != 3 || err != nil {
				t.Errorf("%d chunks are here and %d elsewhere: %v", local, remote, err)
			}
			if err := d.Close(within(t)); err != nil {
				t.Fatal(err)
			}
			wantShared(t, reader, keysOf("unknown", 1), 0)
			wantShared(t, reader, keys[:3], 3)
			_, _, err := reader.Sharing().Lookup(within(t), keysOf("unasked", 1))
			if err == nil || !strings.Contains(err.Error(), "controller_reply_url") ||
				!strings.Contains(err.Error(), "share.vanilla_controller") {
				t.Errorf("a lookup without a directory says %v, want the key, and what LMCache's own needs", err)
			}
			for _, n := range []*runtime.Node{reader, owner} {
				wantNothingHeld(t, n)
				mustClose(t, n)
			}
		})
	}
}

// An owner lends one peer a part of its pool at a time (share.lent_pct). A reader that asks for more gets that part,
// and hears which bound ended it: the other chunks are not missing, and the directory that named them was right.
func TestSharingMoreThanOnePeerMayHave(t *testing.T) {
	for _, pull := range []bool{true, false} {
		t.Run(fmt.Sprintf("read: %t", pull), func(t *testing.T) {
			_, at := startDirectory(t)
			keys := keysOf("many", 7) // Of eight pages one peer is lent three.
			owner := open(t, sharerConfig(t, "shm", "a", at))
			mustStore(t, owner, keys)
			for _, named := range []bool{true, false} {
				cfg, from := sharerConfig(t, "shm", "b", at), runtime.SharingPeer{}
				if named {
					from = runtime.SharingPeer{Host: "127.0.0.1", InitPort: peerOf(owner).InitPort}
				}
				cfg.Share.Pull = pull
				reader := open(t, cfg)
				awaitLocations(t, reader, keys, 7)
				got, err := reader.Sharing().Get(within(t), runtime.SharedGet{Request: "r", Keys: keys, From: from})
				wantCode(t, err, effects.NotFound)
				if err == nil || !strings.Contains(err.Error(), "share.lent_pct") {
					t.Errorf("named %t: got %v, want the bound named", named, err)
				}
				wantContent(t, got, keys[:3], pageBytes)
				mustRelease(t, got)
				wantNothingHeld(t, reader)
				mustClose(t, reader)
			}
			mustClose(t, owner)
		})
	}
}

// An engine may say itself who has chunks; then nobody else is asked, and needs no directory.
func TestSharingWithoutDirectory(t *testing.T) {
	owner, reader := open(t, sharerConfig(t, "shm", "a", config.MonitorPorts{})),
		open(t, sharerConfig(t, "shm", "b", config.MonitorPorts{}))
	keys := keysOf("named", 2)
	mustStore(t, owner, keys)
	got, err := reader.Sharing().Get(within(t), runtime.SharedGet{Request: "r", Keys: keys,
		From: runtime.SharingPeer{Host: "127.0.0.1", InitPort: peerOf(owner).InitPort}})
	if err != nil {
		t.Fatal(err)
	}
	wantContent(t, got, keys, pageBytes)
	mustRelease(t, got)
	_, err = reader.Sharing().Get(within(t), runtime.SharedGet{Request: "r", Keys: keysOf("other", 1)})
	wantCode(t, err, effects.Unsupported)
	_, _, err = reader.Sharing().Lookup(within(t), keys)
	wantCode(t, err, effects.Unsupported)
	for _, n := range []*runtime.Node{reader, owner} {
		wantNothingHeld(t, n)
		mustClose(t, n)
	}
}

// The owner dies while its chunks are asked for, or read. That is a miss, or what came before; the reader holds nothing
// of it, goes on, and stores what it computes itself.
func TestSharingOwnerDies(t *testing.T) {
	for name, at := range map[string]strike{
		"before it answers":         {After: "*effects.Grant", At: "*effects.Reply"},
		"before its pages are read": {At: "*effects.Transfer", There: true},
		"before it writes":          {At: "*effects.Transfer"},
	} {
		t.Run(name, func(t *testing.T) {
			_, ports := startDirectory(t)
			cfg := sharerConfig(t, "tcp", "b", ports)
			cfg.Share.Pull = at.There || at.After != ""
			reader := open(t, cfg)
			o := order{Role: "sharer", Channel: "tcp", Peer: runtime.Peer{InitPort: ports.Pull, AllocPort: ports.Reply}}
			if !at.There {
				at.Signal = syscall.SIGKILL
				o.Strike = at
			}
			p, _ := startNode(t, o)
			if at.There {
				hit := at.arm(p.Kill)
				reader.Watch(func(ev effects.Event) { hit(ev) }, func(e effects.Effect) { hit(e) })
			}
			keys := keysOf("lost", 4)
			p.perform(order{Op: "store", Keys: keys})
			awaitLocations(t, reader, keys, len(keys))
			got, err := reader.Sharing().Get(within(t), runtime.SharedGet{Request: "r", Keys: keys})
			if code := runtime.CodeOf(err); code != effects.NotFound {
				t.Errorf("the get ends as %v, and its owner is dead", err)
			}
			wantContent(t, got, keys[:got.Len()], pageBytes)
			mustRelease(t, got)
			waitFor(t, reader, "the end of all reads", isQuiet)
			mustStore(t, reader, keys)
			wantShared(t, reader, keys, len(keys))
			wantNothingHeld(t, reader)
			mustClose(t, reader)
		})
	}
}

// What a handle has stored it has no more; what does not share says so.
func TestSharingRefuses(t *testing.T) {
	n := open(t, sharerConfig(t, "shm", "a", config.MonitorPorts{}))
	keys := keysOf("refused", 2)
	pages, err := n.Sharing().Reserve(within(t), 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Sharing().Store(within(t), keys, pages, 1); err != nil {
		t.Fatal(err)
	}
	_, err = pages.Bytes(1)
	wantCode(t, err, effects.Invalid)
	wantCode(t, n.Sharing().Store(within(t), keys[:1], pages, 2), effects.Invalid)
	if _, err := pages.Bytes(0); err != nil {
		t.Error(err)
	}
	mustRelease(t, pages)
	wantNothingHeld(t, n)
	mustClose(t, n)
	r := open(t, receiverConfig(t, "shm", nil))
	_, err = r.Sharing().Get(within(t), runtime.SharedGet{Request: "r", Keys: keys})
	wantCode(t, err, effects.Unsupported)
	mustClose(t, r)
}

// Directories can be told of no hash of more than 64 bits: who hands one over hears so, and nothing is stored.
func TestSharingOfLongHashes(t *testing.T) {
	d, at := startDirectory(t)
	n := open(t, sharerConfig(t, "shm", "a", at))
	keys := append(keysOf("long", 1), "long@1@0@ffeeddccbbaa99887766@bfloat16")
	pages, err := n.Sharing().Reserve(within(t), 2)
	if err != nil {
		t.Fatal(err)
	}
	_, err = n.Sharing().Share(within(t), keys, pages, 0)
	_, got := n.Sharing().Get(within(t), runtime.SharedGet{Request: "r", Keys: keys})
	_, _, looked := n.Sharing().Lookup(within(t), keys)
	for _, err := range []error{n.Sharing().Store(within(t), keys, pages, 0), err, got, looked} {
		if wantCode(t, err, effects.Invalid); err != nil && !strings.Contains(err.Error(), "Keys[1]") {
			t.Errorf("%v: want the key by its place", err)
		}
	}
	if here, err := n.Receiver().Contains(within(t), keys); here != 0 || err != nil {
		t.Errorf("%d chunks are stored: %v", here, err)
	}
	mustRelease(t, pages)
	wantNothingHeld(t, n)
	mustClose(t, n)
	if err := d.Close(within(t)); err != nil {
		t.Fatal(err)
	}
}

// An engine shares its own pages: a peer reads them, and cannot after they were withdrawn, though the engine has not
// given them back.
func TestSharingOfOwnPages(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		owner := open(t, sharerConfig(t, channel, "a", config.MonitorPorts{}))
		reader := open(t, sharerConfig(t, channel, "b", config.MonitorPorts{}))
		keys := keysOf("own", 3)
		pages, err := owner.Sharing().Reserve(within(t), 3)
		if err != nil {
			t.Fatal(err)
		}
		fill(t, pages, keys)
		shared, err := owner.Sharing().Share(within(t), keys, pages, 0)
		if err != nil || shared.Hits() != 3 {
			t.Fatalf("%d chunks are shared: %v", shared.Hits(), err)
		}
		wantCode(t, pages.Release(within(t)), effects.Invalid)
		wantCode(t, owner.Sharing().Store(within(t), keys[:1], pages, 0), effects.Invalid)
		from := runtime.SharingPeer{Host: "127.0.0.1", InitPort: peerOf(owner).InitPort}
		got, err := reader.Sharing().Get(within(t), runtime.SharedGet{Request: "r", Keys: keys[:2], From: from})
		if err != nil {
			t.Fatal(err)
		}
		wantContent(t, got, keys[:2], pageBytes)
		mustRelease(t, got)
		if err := shared.Withdraw(within(t)); err != nil {
			t.Fatal(err)
		}
		wantCode(t, shared.Withdraw(within(t)), effects.NotFound)
		_, err = reader.Sharing().Get(within(t), runtime.SharedGet{Request: "s", Keys: keys[2:], From: from})
		wantCode(t, err, effects.NotFound)
		if _, err := pages.Bytes(0); err != nil {
			t.Error(err)
		}
		mustRelease(t, pages)
		for _, n := range []*runtime.Node{reader, owner} {
			wantNothingHeld(t, n)
			mustClose(t, n)
		}
	}
}
