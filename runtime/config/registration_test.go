package config

import (
	"strings"
	"testing"

	"github.com/kvferry/kvferry/protocol"
)

// A registration fits a message: who says how long one is, or how many pages the other has, has as much of the other.
// Who registers nothing has no batches of so many keys.
func TestLimitsOfRegistrations(t *testing.T) {
	for limits, want := range map[string][2]int{
		"":                        {1 << 19, 14<<19 + 16<<10},
		"keys_per_batch: 1048576": {1 << 20, 14<<20 + 16<<10},
		"keys_per_batch: 100":     {100, 1 << 20},
		"message_bytes: 1MiB":     {(1<<20 - 16<<10) / 14, 1 << 20},
		"message_bytes: 64MiB":    {1 << 19, 64 << 20},
		"message_bytes: 1MiB, keys_per_batch: 65536": {1 << 16, 1 << 20},
	} {
		c := mustParse(t, registerYAML+"    limits: {"+limits+"}\n")
		if l := c.Limits; l.ArrayLen != want[0] || l.MessageBytes != want[1] || l.BlockCount < l.ArrayLen {
			t.Errorf("%q: %d keys, %d bytes, %d blocks", limits, l.ArrayLen, l.MessageBytes, l.BlockCount)
		}
		m := protocol.PushRegistration{
			RequestID: []byte("r"), TPSize: 1, Remote: protocol.PushProducer{PPSize: 1}, HasExt: true,
		}
		m.Blocks = [][]uint64{make([]uint64, c.Limits.ArrayLen)}
		m.Ext.First, m.Ext.Ends, m.Ext.Generations = []uint64{0}, []uint64{0}, make([]uint64, c.Limits.ArrayLen)
		for i := range m.Ext.Generations {
			m.Blocks[0][i], m.Ext.Generations[i] = 1<<32-1, 1<<64-1
		}
		if err := m.Decode(m.Append(nil), &c.Limits); err != nil {
			t.Errorf("%q: the longest registration: %v", limits, err)
		}
	}
	for text, want := range map[string]string{
		registerYAML + "    limits: {message_bytes: 1MiB, keys_per_batch: 100000}\n": "limits.message_bytes",
		registerYAML + "    limits: {message_bytes: 4KiB, key_bytes: 64}\n":          "limits.message_bytes",
		receiverYAML + "    limits: {keys_per_batch: 65537}\n":                       "limits.keys_per_batch",
	} {
		_, err := Parse("node.yaml", []byte(text), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want a problem of %s", err, want)
		}
	}
}
