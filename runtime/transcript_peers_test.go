//go:build cgo && linux

package runtime_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/secure"
	"github.com/kvferry/kvferry/runtime/secure/authority"
)

// peerSituations are what two ends say of each other.
var peerSituations = []situation{
	{"a put that arrives", effects.OK, func(x *transcript) {
		s, r := x.openNode("sender", senderConfig(x, "shm", effects.Addr{})), x.openNode("receiver", receiverConfig(x, "shm", nil))
		x.putChunk(s, peerOf(r), limit)
	}},
	{"a put to nobody", effects.Unreachable, func(x *transcript) {
		s, nobody := x.openNode("sender", senderConfig(x, "shm", effects.Addr{})), reservedPeer(x)
		x.setReceiver(nobody)
		x.putChunk(s, nobody, limit)
	}},
	{"a put to a wrong port of allocations", effects.Unreachable, func(x *transcript) {
		s, r := x.openNode("sender", senderConfig(x, "shm", effects.Addr{})), x.openNode("receiver", receiverConfig(x, "shm", nil))
		to, nobody := peerOf(r), reservedPeer(x)
		to.AllocPort = nobody.AllocPort
		x.setReceiver(nobody)
		x.putChunk(s, to, limit)
	}},
	{"a put to a receiver's ports, exchanged", effects.Refused, func(x *transcript) {
		s, r := x.openNode("sender", senderConfig(x, "shm", effects.Addr{})), x.openNode("receiver", receiverConfig(x, "shm", nil))
		to := peerOf(r)
		to.InitPort, to.AllocPort = to.AllocPort, to.InitPort
		x.setReceiver(to)
		x.putChunk(s, to, briefly)
	}},
	{"a put to a peer that says nothing", effects.Expired, func(x *transcript) {
		s, silent := x.openNode("sender", senderConfig(x, "shm", effects.Addr{})), newSilentPeer(x.T)
		x.setReceiver(silent.Peer)
		x.putChunk(s, silent.Peer, briefly)
	}},
	{"a put to a receiver with another dtype", effects.Mismatch, func(x *transcript) {
		r := x.openNode("receiver", receiverConfig(x, "shm", nil))
		x.putChunk(x.openNode("sender", x.senderWith("dtype: bfloat16", "dtype: half")), peerOf(r), limit)
	}},
	{"a put to a receiver with another chunk_size", effects.Mismatch, func(x *transcript) {
		r := x.openNode("receiver", receiverConfig(x, "shm", nil))
		x.putChunk(x.openNode("sender", x.senderWith("chunk_size: 16", "chunk_size: 32")), peerOf(r), limit)
	}},
	{"a put of an identity without the role", effects.Forbidden, func(x *transcript) {
		fleet, err := authority.New(time.Hour, time.Now)
		if err != nil {
			x.Fatal(err)
		}
		r := x.openNode("receiver", receiverConfig(x, "shm", nil), x.provesIdentity(fleet, "spiffe://fleet/decode/1"))
		s := x.openNode("sender", senderConfig(x, "shm", effects.Addr{}), x.provesIdentity(fleet, "spiffe://fleet/decode/2"))
		x.putChunk(s, peerOf(r), limit)
	}},
	{"a fetch of a page that has changed", effects.Corrupt, func(x *transcript) {
		r := x.openNode("receiver", withChecksums(delayedConfig(x, "shm", 2)))
		s := x.openNode("sender", withChecksums(pullSenderConfig(x, "shm", effects.Addr{})))
		keys := keysOf("told", 1)
		pages := mustReserve(x, s, 1)
		fill(x, pages, keys)
		if _, err := s.Sender().Put(within(x), runtime.Put{Peer: peerOf(r), Request: "r", Keys: keys, Pages: pages}); err != nil {
			x.Fatal(err)
		}
		flipBit(x, pages, 0)
		_, err := r.Receiver().Fetch(within(x), runtime.Fetch{Request: "r", Keys: keys, Scatter: failingScatter(x), Timeout: limit})
		if at := aPort.FindString(err.Error()); at != "" {
			x.replaceText(at, "127.0.0.1:7500")
		}
		x.addError(err)
		mustRelease(x, pages)
	}},
	{"a put to a receiver with another plane", effects.Unreachable, func(x *transcript) {
		r := x.openNode("receiver", receiverConfig(x, "tcp", nil))
		x.putChunk(x.openNode("sender", senderConfig(x, "shm", effects.Addr{})), peerOf(r), briefly)
	}},
	{"a put to a receiver whose pool is full", effects.NoMemory, func(x *transcript) {
		s, r := x.fullReceiver()
		x.putChunk(s, peerOf(r), limit)
	}},
	{"a put to a receiver that was full", effects.BackedOff, func(x *transcript) {
		s, r := x.fullReceiver()
		pages := mustReserve(x, s, 1)
		put := runtime.Put{Peer: peerOf(r), Request: "r", Keys: keysOf("told", 1), Pages: pages}
		_, err := s.Sender().Put(within(x), put)
		wantCode(x, err, effects.NoMemory)
		_, err = s.Sender().Put(within(x), put)
		x.addError(err)
		mustRelease(x, pages)
	}},
	{"a put that its receiver refuses", effects.Refused, func(x *transcript) {
		x.putWithReply(senderConfig(x, "shm", effects.Addr{}), receiverConfig(x, "shm", nil), effects.Refused)
	}},
	{"a put that ends with another life", effects.Stale, func(x *transcript) {
		x.putWithReply(senderConfig(x, "shm", effects.Addr{}), receiverConfig(x, "shm", nil), effects.Stale)
	}},
	{"a put whose pages were taken back", effects.Withdrawn, func(x *transcript) {
		x.putWithReply(senderConfig(x, "shm", effects.Addr{}), receiverConfig(x, "shm", nil), effects.Withdrawn)
	}},
	{"a put with an answer that is none", effects.Malformed, func(x *transcript) {
		x.putWithReply(senderConfig(x, "shm", effects.Addr{}), receiverConfig(x, "shm", nil), effects.Malformed)
	}},
	{"an offer whose receiver has restarted", effects.PeerLost, func(x *transcript) {
		x.putWithReply(pullSenderConfig(x, "shm", effects.Addr{}), delayedConfig(x, "shm", 2), effects.Stale)
	}},
	{"a put to NIXL or Mooncake", effects.Expired, func(x *transcript) {
		s, to := x.openNode("sender", senderConfig(x, "shm", effects.Addr{})), runtime.Peer{Host: "127.0.0.1"}
		for _, port := range []*uint16{&to.InitPort, &to.AllocPort} {
			*port = addrOf(x.T, bindPlainly(x.T, plainSocket(x.T, zmq4.REP))).Port // It hears, and never answers.
		}
		x.setReceiver(to)
		x.putChunk(s, to, briefly)
	}},
	{"a put to plain LMCache-Ascend", effects.Unsupported, func(x *transcript) {
		x.putToVanilla(senderConfig(x, "shm",
			effects.Addr{}))
	}},
	{"an offer to plain LMCache-Ascend", effects.Unsupported, func(x *transcript) {
		x.putToVanilla(pullSenderConfig(x, "shm",
			effects.Addr{}))
	}},
	{"a put to LMCache-Ascend's HCCL channel", effects.Unsupported, func(x *transcript) {
		s, socket := x.openNode("sender", senderConfig(x, "shm", effects.Addr{})), plainSocket(x.T, zmq4.REP)
		to := otherKind(x.T, socket)
		x.setReceiver(to)
		done := make(chan struct{})
		go func() {
			defer close(done)
			x.putChunk(s, to, limit)
		}()
		answerPlainly(x.T, socket, hcclSaysNo)
		<-done
	}},
	{"a plain sender asks", effects.OK, func(x *transcript) {
		r := x.openNode("receiver", receiverConfig(x, "shm", nil))
		askPlainly(x.T, effects.Addr{Host: "127.0.0.1", Port: peerOf(r).AllocPort}, plainRequest("plain@1@0@a1@bfloat16"))
	}},
	{"a plain sender offers", effects.OK, func(x *transcript) {
		r := x.openNode("receiver", receiverConfig(x, "shm", nil))
		_, done := plainPull(x.T)
		n := notice{keys: keysOf("plain", 2), buffer: uuidText(effects.Incarnation{1}), indexes: [2]byte{0, 1}, done: done}
		askPlainly(x.T, effects.Addr{Host: "127.0.0.1", Port: peerOf(r).AllocPort}, msgmap(n.fields()...))
	}},
	{"a NIXL sender says hello", effects.OK, func(x *transcript) {
		r := x.openNode("receiver", receiverConfig(x, "shm", nil))
		askPlainly(x.T, effects.Addr{Host: "127.0.0.1", Port: peerOf(r).InitPort},
			msgmap("type", fixstr("NixlInitRequest"), "local_meta_bytes", bin8([]byte("meta"))))
	}},
	{"a NIXL sender says hello to a sender", effects.OK, func(x *transcript) {
		s := x.openNode("sender", renewingSenderConfig(x, "shm"))
		askPlainly(x.T, effects.Addr{Host: "127.0.0.1", Port: peerOf(s).InitPort},
			msgmap("type", fixstr("NixlInitRequest"), "local_meta_bytes", bin8([]byte("meta"))))
	}},
	{"upstream's synchronous sender asks", effects.OK, func(x *transcript) {
		r := x.openNode("receiver", receiverConfig(x, "shm", nil))
		askPlainly(x.T, effects.Addr{Host: "127.0.0.1", Port: peerOf(r).AllocPort},
			msgmap("type", fixstr("CancelNotif")))
	}},
	{"a proxy that is down", effects.Expired, func(x *transcript) {
		proxy, r := reservedPeer(x), x.openNode("receiver", receiverConfig(x, "shm", nil))
		cfg := senderConfig(x, "shm", effects.Addr{Host: "127.0.0.1", Port: proxy.InitPort})
		cfg.DrainTimeout = 1
		s := x.openNode("sender", cfg)
		x.replacePort(proxy.InitPort, 7500)
		pages := mustReserve(x, s, 1)
		if _, err := s.Sender().Put(within(x), runtime.Put{Peer: peerOf(r), Request: "r", Keys: keysOf("told", 1),
			Pages: pages, Last: true}); err != nil {
			x.Fatal(err)
		}
		mustRelease(x, pages)
		x.awaitLog("sender", "cannot be reached")
		_, err := s.Drain(over())
		x.addError(err)
	}},
}

// senderWith is a sender's configuration that differs in one line.
func (x *transcript) senderWith(was, is string) *config.Config {
	x.Helper()
	text := fmt.Sprintf(nodeText, "sender", "shm", 8*pageBytes, "pd_skip_proxy_notification: true\n")
	cfg, err := config.Parse("test", []byte(strings.Replace(text, was, is, 1)), nil)
	if err != nil {
		x.Fatal(err)
	}
	return cfg
}

// fullReceiver is a receiver whose pages are all in its engine's hands.
func (x *transcript) fullReceiver() (s, r *runtime.Node) {
	x.Helper()
	cfg := receiverConfig(x, "shm", nil)
	cfg.Machine.AllocTimeout = effects.Millisecond
	s, r = x.openNode("sender", senderConfig(x, "shm", effects.Addr{})), x.openNode("receiver", cfg)
	pages, keys := mustReserve(x, s, 8), keysOf("full", 8)
	if _, err := s.Sender().Put(within(x), runtime.Put{Peer: peerOf(r), Request: "full", Keys: keys,
		Pages: pages}); err != nil {
		x.Fatal(err)
	}
	mustRelease(x, pages)
	got, err := r.Receiver().Get(within(x), runtime.Get{Request: "full", Keys: keys})
	if err != nil {
		x.Fatal(err)
	}
	x.addCleanup(func() { mustRelease(x, got) })
	return s, r
}

// putWithReply puts to a receiver that gives each such code as its answer.
func (x *transcript) putWithReply(sends, receives *config.Config, code effects.Code) {
	r := x.openNode("receiver", receives, runtime.WithControl(func(env control.Env) (control.Transport, error) {
		t, err := zmq.Config{}.Opener()(env)
		return answering{t, code}, err
	}))
	x.putChunk(x.openNode("sender", sends), peerOf(r), limit)
}

// answering is a control transport that says a code instead of what the machine answers to a request for pages or to an
// offer; Malformed it says by what is no message.
type answering struct {
	control.Transport
	code effects.Code
}

func (a answering) Reply(e *effects.Reply) {
	lim, lie := protocol.DefaultLimits(), *e
	var pages protocol.AllocResponse
	var offer protocol.PullReadyDoneAck
	if err := pages.Decode(e.Body, &lim); err == nil {
		lie.Body = (&protocol.AllocResponse{Form: pages.Form, AllocFailed: true, HasExt: true,
			Ext: protocol.AllocReplyExt{Version: pages.Ext.Version, Code: uint32(a.code)}}).Append(nil)
	} else if err := offer.Decode(e.Body, &lim); err == nil {
		offer.AllocFailed, offer.Ext.Code = true, uint32(a.code)
		lie.Body = offer.Append(nil)
	}
	if a.code == effects.Malformed && len(lie.Body) > 0 && &lie.Body[0] != &e.Body[0] {
		lie.Body = []byte("nonsense")
	}
	a.Transport.Reply(&lie)
}

// putToVanilla puts to a receiver of LMCache-Ascend, as far as that comes.
func (x *transcript) putToVanilla(cfg *config.Config) {
	node := x.openNode("sender", cfg)
	r := newHandmadeReader(x.T, node, shm.Open)
	x.setReceiver(r.peer)
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.putChunk(node, r.peer, limit)
	}()
	r.welcomes(true)
	<-done
}

// provesIdentity returns the option with which the control connections of a node prove an identity of a fleet.
func (x *transcript) provesIdentity(fleet *authority.Authority, identity string) runtime.Option {
	x.Helper()
	dir := x.TempDir()
	if err := fleet.WriteFolder(dir, identity, authority.FleetPolicy("fleet")); err != nil {
		x.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	guard, err := secure.Open(secure.Config{Mode: secure.Strict, Cert: in(authority.CertFile), Key: in(authority.KeyFile),
		CA: in(authority.CAFile), Policy: in(authority.PolicyFile), Recheck: time.Hour, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		x.Fatal(err)
	}
	x.Cleanup(guard.Close)
	return runtime.WithControl(zmq.Config{Guard: guard}.Opener())
}
