package fuzz

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/kvferry/kvferry/protocol"
)

// AgentFrames checks how the bytes of an agent's socket are split into frames: the frames together are the bytes, and
// the rest contains no whole frame.
var AgentFrames = statelessTarget("AgentFrames", checkAgentFrames, textSeeds(
	"\x02\x00\x00\x00ab\x00\x00\x00\x00", "\x01\x00\x00\x00a\x05\x00\x00\x00bcd", "\x01\x00\x00", "\xff\xff\xff\xffab",
))

func checkAgentFrames(b []byte) error {
	var again []byte
	rest := b
	for {
		body, after, ok := protocol.CutFrame(rest)
		if !ok {
			break
		}
		again, rest = protocol.AppendFrame(again, body), after
	}
	if !bytes.Equal(append(again, rest...), b) {
		return fmt.Errorf("frames of %d bytes are cut off %d, and are not those", len(again), len(b))
	}
	for more := range len(rest) {
		if _, _, ok := protocol.CutFrame(rest[:more]); ok {
			return errors.New("a part of what is no whole frame is one")
		}
	}
	return nil
}
