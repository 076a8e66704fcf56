package pd

import (
	"testing"

	"github.com/kvferry/kvferry/sim/world"
)

// TestKeysTellTheirNumbers: the text of a key yields the number of the key, and no other text yields a number.
func TestKeysTellTheirNumbers(t *testing.T) {
	var k keyTable
	var memory world.Arena[byte]
	k.resetTo(300)
	for id := range uint32(len(k) - 1) {
		k.keyOf(id, world.TenantOf(id%3), &memory)
	}
	for id, text := range k[:len(k)-1] {
		if number, ok := k.NumberOf(text); !ok || number != uint32(id) {
			t.Fatalf("%s is the key of chunk %d, and is said to be that of %d (%t)", text, id, number, ok)
		}
	}
	var more keyTable
	more.resetTo(len(k))
	for _, text := range []string{
		"", "sim", string(more.keyOf(uint32(len(k)-1), 0, &memory)), "sim@1@0@zzzzzzzz1@bfloat16",
		"sim@1@0@00000000\xff@bfloat16", "sim@1@0@100000001@bfloat16", "mis" + string(k[5][3:]), string(k[5]) + "x",
		string(k[3]) + "@kvft%0000000000000001", "@kvft%0000000000000001",
	} {
		if number, ok := k.NumberOf([]byte(text)); ok || number != 0 {
			t.Errorf("%q is no key of a chunk, and is said to be that of %d", text, number)
		}
	}
}
