package fuzz

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/protocol"
)

// Nixl checks the decoders of vLLM's NIXL push connector. Every decoder sees every input, because the messages have no
// tags.
var Nixl = registerTarget(Target{name: "Nixl", seeds: nixlSeeds, begin: func() Check {
	used := nixlMessages()
	return func(b []byte) error {
		for i, m := range nixlMessages() {
			if err := checkUntagged(b, m, used[i], nixlMessages()[i]); err != nil {
				return err
			}
		}
		return nil
	}
}})

// nixlSeeds returns a message of each kind, and texts that terminate an engine of vLLM or its listener.
func nixlSeeds() [][]byte {
	one := []uint64{4096}
	meta := (&protocol.NixlMetadata{
		EngineID: []byte("D"), Agent: []byte{1, 2}, BaseAddrs: []uint64{0x7f0000000000}, NumBlocks: 4, BlockLens: one,
		BlockStrides: one, Layout: []byte("LBHNC"), BlockSize: 16, Backend: []byte("FLASH_ATTN"), PerLogical: 1, DCPSize: 1,
		PCPSize: 1, Regions: protocol.NixlRegions{GroupIDs: []int64{-1}, HasGroupIDs: true, HasNames: true},
		Members: [][][]byte{{[]byte("l.0"), []byte("l.1")}},
		Packed:  []protocol.NixlPackedMember{{Layer: []byte("l.0"), PageBytes: 2048}},
	}).Append(nil)
	register := protocol.PushRegistration{
		RequestID: []byte("cmpl-u-0-0123abcd"), EngineID: []byte("D"), Host: []byte("10.0.0.2"), Port: 5601, TPSize: 2,
		Blocks: [][]uint64{{3, 127}, {}},
		Remote: protocol.PushProducer{EngineID: []byte("P"), Host: []byte("10.0.0.1"), Port: 5600, TPSize: 4, PPSize: 2},
	}
	extended := register
	extended.HasExt, extended.Ext = true, protocol.PushRegistrationExt{
		Version: 2, Incarnation: protocol.UUID{1}, To: protocol.UUID{2}, Operation: 3, Attempt: 1, Transfer: []byte("t"),
		First: []uint64{0, 4}, Ends: []uint64{0, 7}, Grant: 9, Generations: []uint64{1, 2}, GrantedNS: 5, LeaseNS: 6,
		PatienceNS: 7, Caches: 10, Stamps: protocol.Stamps{ClockNS: 8},
	}
	end := protocol.PushEnd{Version: 2, Incarnation: protocol.UUID{2}, Operation: 3, Code: 1, Reason: []byte("late")}
	off := protocol.PushWithdrawal{Version: 2, Incarnation: protocol.UUID{1}, To: protocol.UUID{2}, Operation: 3}
	keep := protocol.PushKeep{
		Version: 2, Incarnation: protocol.UUID{1}, To: protocol.UUID{2}, Keep: [][]byte{[]byte("a")},
		Skip: [][]byte{[]byte("b")},
	}
	flat := strings.Replace(string(register.Append(nil)), "ids\x92\x92\x03\x7f\x90", "ids\x92\x03\x7f", 1)
	return append([][]byte{
		meta, (&protocol.NixlHello{Hash: []byte("31b38f"), Metadata: meta}).Append(nil),
		(&protocol.NixlMetadataRequest{PPRank: 1, TPRank: 3}).Append(nil), (&protocol.NixlClock{Seconds: 1.5}).Append(nil),
		register.Append(nil), []byte(flat), extended.Append(nil), end.Append(nil), off.Append(nil), keep.Append(nil),
	}, textSeeds("cmpl-u-0-0123abcd:4", "HB:cmpl-u-0-89abcdef,cmpl-v-0-01234567", "HB:,,", "no colon", "r:x", "\xff:1",
		"PUSH_REG:\x80", "PUSH_REG:\xdf\xff\xff\xff\xff", "\x92\xa1x\x00", "HB:1")()...)
}

func nixlMessages() []protocol.Message {
	return []protocol.Message{
		new(protocol.NixlMetadata), new(protocol.NixlHello), new(protocol.NixlMetadataRequest), new(protocol.NixlClock),
		new(protocol.PushRegistration), new(protocol.PushHeartbeat), new(protocol.PushCompletion),
		new(protocol.PushEnd), new(protocol.PushWithdrawal), new(protocol.PushKeep),
	}
}

// checkUntagged decodes the input into a fresh receiver and into a used receiver, and decodes the encoded message
// again.
func checkUntagged(b []byte, m, used, decoded protocol.Message) error {
	err := m.Decode(b, nil)
	if reused := used.Decode(b, nil); (err == nil) != (reused == nil) {
		return fmt.Errorf("%T: a fresh receiver gives %w, a used one %w", m, err, reused)
	}
	if err != nil {
		return checkDecodeError(b, err)
	}
	if textOf(used) != textOf(m) {
		return fmt.Errorf("a fresh receiver holds %s, a used one %s", textOf(m), textOf(used))
	}
	encoded := m.Append(nil)
	if err := decoded.Decode(encoded, nil); err != nil {
		return fmt.Errorf("%s encodes as %x: %w", textOf(m), encoded, err)
	}
	if twice := decoded.Append(nil); textOf(decoded) != textOf(m) || !bytes.Equal(twice, encoded) {
		return fmt.Errorf("%s encodes as %x, which is %s and encodes as %x", textOf(m), encoded, textOf(decoded), twice)
	}
	if c, is := m.(*protocol.PushCompletion); is && protocol.CheckNixlRequest(c.RequestID, nil) == nil &&
		protocol.NotificationKindOf(encoded) != protocol.NixlCompletion {
		return fmt.Errorf("a completion of %q is taken for something else", c.RequestID)
	}
	return nil
}
