package serve

import (
	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
)

// A fact tells a directory what a message says, and gives the answer; nil: an ErrorMsg, or none on the feed.
type fact func(d *directory.Directory, now effects.Time) (protocol.Message, effects.Code)

// genMessage draws a message of somebody.
func genMessage(t *rapid.T, c *Config) generatedMessage {
	text := func(name string, of ...string) []byte { return []byte(rapid.SampledFrom(of).Draw(t, name)) }
	w := worker(string(text("instance", "a", "b", "c", "")), rapid.Uint32Range(0, 1).Draw(t, "rank"))
	is := protocol.UUID{byte(rapid.IntRange(0, 2).Draw(t, "incarnation"))}
	at := protocol.Listener{IP: text("ip", "h1", "h2"), Port: 9}
	url := text("url", "h1:7", "h2:7", "")
	to := directory.Address{IP: at.IP, Port: int64(at.Port), URL: url}
	location, id := text("location", "cpu", "disk", "remote"), text("sync", "s", "t")
	keys := rapid.SliceOfN(genHash, 0, 7).Draw(t, "keys")
	number := rapid.Uint64Range(0, 4).Draw(t, "number")
	silence := uint64(c.Directory.Silence)
	if is == (protocol.UUID{}) {
		silence = 0
	}
	named, anyone := senderOf(w, is), senderOf(w, protocol.UUID{})
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		m := &protocol.RegisterMsg{Worker: w, Listener: at, PeerInitURL: url, Incarnation: is}
		return generatedMessage{effects.ChannelDirectory, m,
			func(d *directory.Directory, now effects.Time) (protocol.Message, effects.Code) {
				code := d.Register(now, named, to)
				return answer(code, &protocol.RegisterRetMsg{ExtraConfig: protocol.ExtraConfig{HeartbeatURL: []byte(c.Heartbeat)}, SilenceNS: silence})
			}}
	case 1:
		m := &protocol.HeartbeatMsg{Worker: w, Listener: at, PeerInitURL: url, Incarnation: is}
		on := rapid.SampledFrom([]effects.Channel{effects.ChannelDirectory, effects.ChannelHeartbeat}).Draw(t, "channel")
		return generatedMessage{on, m, func(d *directory.Directory, now effects.Time) (protocol.Message, effects.Code) {
			why, code := d.Heartbeat(now, named, to)
			x := &protocol.HeartbeatRetMsg{SilenceNS: silence}
			if why != directory.NoSync {
				x.Commands = []protocol.Command{{Type: protocol.CommandFullSync, Reason: []byte(why.String())}}
			}
			return answer(code, x)
		}}
	case 2:
		m := &protocol.DeRegisterMsg{Worker: w, Listener: at, Incarnation: is}
		return generatedMessage{effects.ChannelFeed, m, func(d *directory.Directory, now effects.Time) (protocol.Message, effects.Code) {
			return nil, d.Deregister(now, named, to)
		}}
	case 3:
		evicts := rapid.SliceOfN(rapid.Bool(), len(keys), len(keys)).Draw(t, "evict")
		m := &protocol.BatchedKVOperationMsg{Worker: w, Location: location, Incarnation: is}
		var ops []directory.Operation
		for i, k := range keys {
			x := protocol.KVOperation{Key: k, Seq: number + uint64(i)}
			if evicts[i] {
				x.Type = protocol.OpEvict
			}
			m.Operations = append(m.Operations, x)
			ops = append(ops, directory.Operation{Evict: evicts[i], Hash: k.Bits, Sequence: x.Seq})
		}
		return saidOperations(m, &directory.Report{Sender: named, Location: location, Operations: ops})
	case 4:
		k := genHash.Draw(t, "key")
		x := protocol.KVAdmitMsg{Worker: w, Key: k, Location: location, Seq: number}
		r := &directory.Report{Sender: anyone, Location: location, Unnumbered: number == 0}
		if rapid.Bool().Draw(t, "evict") {
			r.Operations = []directory.Operation{{Evict: true, Hash: k.Bits, Sequence: number}}
			return saidOperations((*protocol.KVEvictMsg)(&x), r)
		}
		r.Operations = []directory.Operation{{Hash: k.Bits, Sequence: number}}
		return saidOperations(&x, r)
	case 5:
		m := &protocol.BatchedP2PLookupMsg{Worker: w, Hashes: keys}
		return generatedMessage{effects.ChannelDirectory, m,
			func(d *directory.Directory, now effects.Time) (protocol.Message, effects.Code) {
				peers, code := d.Lookup(now, anyone, hashesOf(keys), nil)
				x := &protocol.BatchedP2PLookupRetMsg{}
				for _, p := range peers {
					x.Holders = append(x.Holders, protocol.Holder{
						InstanceID: []byte(p.Instance), Location: []byte(p.Location), HitChunks: uint32(p.Chunks),
						PeerInitURL: []byte(p.URL),
					})
				}
				if code == effects.TooLarge && len(keys) > c.Directory.HashesPerLookup {
					code = effects.OK
				}
				return answer(code, x)
			}}
	case 6:
		m := &protocol.FullSyncStartMsg{
			Worker: w, Location: location, SyncID: id, BatchCount: uint32(number), Incarnation: is,
			Numbered: rapid.Bool().Draw(t, "numbered"),
		}
		if m.Numbered {
			m.Next = rapid.Uint64Range(0, 3).Draw(t, "next")
		}
		return generatedMessage{effects.ChannelDirectory, m,
			func(d *directory.Directory, now effects.Time) (protocol.Message, effects.Code) {
				code := d.BeginSync(now, &directory.SyncBegin{
					Sender: named, Location: location, ID: id, Batches: int64(number), NextSequence: m.Next, Numbered: m.Numbered,
				})
				x := &protocol.FullSyncStartRetMsg{SyncID: id, Accepted: code == effects.OK}
				if code != effects.OK {
					x.ErrorMsg = []byte(code.String())
				}
				return x, code
			}}
	case 7:
		m := &protocol.FullSyncBatchMsg{
			Worker: w, Location: location, SyncID: id, BatchID: uint32(number), Keys: keys, Incarnation: is,
		}
		return generatedMessage{effects.ChannelFeed, m, func(d *directory.Directory, now effects.Time) (protocol.Message, effects.Code) {
			return nil, d.AddSyncBatch(now, &directory.SyncBatch{
				Sender: named, Location: location, ID: id, Batch: int64(number), Hashes: hashesOf(keys),
			})
		}}
	case 8:
		m := &protocol.FullSyncEndMsg{Worker: w, Location: location, SyncID: id, ActualTotalKeys: number, Incarnation: is}
		return generatedMessage{effects.ChannelFeed, m, func(d *directory.Directory, now effects.Time) (protocol.Message, effects.Code) {
			return nil, unless(effects.Mismatch, d.EndSync(now, &directory.SyncEnd{
				Sender: named, Location: location, ID: id, Chunks: int64(number),
			}))
		}}
	}
	m := &protocol.FullSyncStatusMsg{Worker: w, SyncID: id}
	return generatedMessage{effects.ChannelDirectory, m,
		func(d *directory.Directory, now effects.Time) (protocol.Message, effects.Code) {
			p, code := d.SyncStatus(now, anyone, id, make([]int64, 0, maxMissing))
			return answer(unless(effects.NotFound, code), &protocol.FullSyncStatusRetMsg{
				SyncID: id, IsComplete: p.Complete, CanExitFreeze: p.Resume, GlobalProgress: float64(p.Done) / 10_000,
				MissingBatches: p.Missing,
			})
		}}
}

func saidOperations(m protocol.Message, r *directory.Report) generatedMessage {
	return generatedMessage{effects.ChannelFeed, m, func(d *directory.Directory, now effects.Time) (protocol.Message, effects.Code) {
		return nil, unless(effects.Mismatch, d.ApplyReport(now, r))
	}}
}

// answer is one that is given only if nothing is wrong.
func answer(code effects.Code, m protocol.Message) (protocol.Message, effects.Code) {
	if code != effects.OK {
		return nil, code
	}
	return m, code
}

// unless is a code, where another one is no refusal.
func unless(fine, code effects.Code) effects.Code {
	if code == fine {
		return effects.OK
	}
	return code
}
