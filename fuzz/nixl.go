package fuzz

import (
	"bytes"
	"fmt"

	"github.com/kvferry/kvferry/protocol"
)

// Nixl holds the decoders of vLLM's NIXL push connector, which see every input: its messages have no tags.
var Nixl = Target{name: "Nixl", begin: func() Check {
	used := nixls()
	return func(b []byte) error {
		for i, m := range nixls() {
			if err := checkUntagged(b, m, used[i], nixls()[i]); err != nil {
				return err
			}
		}
		return nil
	}
}}

func nixls() []protocol.Message {
	return []protocol.Message{
		new(protocol.NixlMetadata), new(protocol.NixlHello), new(protocol.NixlQuestion), new(protocol.NixlClock),
		new(protocol.PushRegistration), new(protocol.PushHeartbeat), new(protocol.PushCompletion),
		new(protocol.PushEnd), new(protocol.PushWithdrawal), new(protocol.PushKeep),
	}
}

// checkUntagged gives the input to a fresh receiver, to one that has had others, and what the first has to a third.
func checkUntagged(b []byte, m, used, again protocol.Message) error {
	err := m.Decode(b, nil)
	if reused := used.Decode(b, nil); (err == nil) != (reused == nil) {
		return fmt.Errorf("%T: a fresh receiver gives %w, a used one %w", m, err, reused)
	}
	if err != nil {
		return wantDecodeError(b, err)
	}
	if text(used) != text(m) {
		return fmt.Errorf("a fresh receiver holds %s, a used one %s", text(m), text(used))
	}
	encoded := m.Append(nil)
	if err := again.Decode(encoded, nil); err != nil {
		return fmt.Errorf("%s encodes as %x: %w", text(m), encoded, err)
	}
	if twice := again.Append(nil); text(again) != text(m) || !bytes.Equal(twice, encoded) {
		return fmt.Errorf("%s encodes as %x, which is %s and encodes as %x", text(m), encoded, text(again), twice)
	}
	if c, is := m.(*protocol.PushCompletion); is && protocol.CheckNixlRequest(c.RequestID, nil) == nil &&
		protocol.NixlNoteOf(encoded) != protocol.NixlCompletion {
		return fmt.Errorf("a completion of %q is taken for something else", c.RequestID)
	}
	return nil
}
