package effects

import (
	"bytes"
	"testing"
)

// Every channel that has a name has an order, a name of one channel is no other's, and every number has a name that
// leads back to it: plans name connections by them.
func TestChannelsHaveNames(t *testing.T) {
	for c := Channel(1); c != 0; c++ {
		if back, ok := ChannelNamed(c.String()); !ok || back != c {
			t.Errorf("%d is called %q, which is %d", c, c.String(), back)
		}
		if known := int(c) < len(channels) || c >= ChannelOther; known != (c.Order() != Unordered) {
			t.Errorf("%v: order %d", c, c.Order())
		}
		if c.HasReplies() == (c.Order() == OneWay) && c.Order() != Unordered {
			t.Errorf("%v: asks %v", c, c.HasReplies())
		}
	}
	for _, name := range []string{"", "channel", "channel0", "channel1", "channel256", "channel-1", "Init"} {
		if c, ok := ChannelNamed(name); ok {
			t.Errorf("%q is channel %d", name, c)
		}
	}
}

// A window is for channels whose answers can be told from each other.
func TestWindowsAreForMatchedChannels(t *testing.T) {
	for c, most := range map[Channel]uint16{
		ChannelInit: 1, ChannelAlloc: 1<<16 - 1, ChannelProxy: 1, ChannelDone: 1, ChannelLookup: 1<<16 - 1, ChannelMeta: 1,
		ChannelQuery: 1, ChannelDirectory: 1<<16 - 1, ChannelFeed: 1, ChannelHeartbeat: 1, ChannelOther: 1<<16 - 1,
	} {
		for _, window := range []uint16{0, 1, 2, 1<<16 - 1} {
			if c.AllowsWindow(window) != (window <= most) {
				t.Errorf("%v takes a window of %d: %v", c, window, c.AllowsWindow(window))
			}
		}
	}
}

func TestParts(t *testing.T) {
	want := [][]byte{nil, []byte("a"), nil, bytes.Repeat([]byte("x"), 300)}
	var body []byte
	for _, p := range want {
		body = AppendPart(body, p)
	}
	for cut := range len(body) {
		short := body[:cut]
		for n := 0; ; n++ {
			part, rest, ok := CutPart(short)
			if !ok {
				break
			}
			if !bytes.Equal(part, want[n]) {
				t.Fatalf("part %d of %d bytes is %q", n, cut, part)
			}
			short = rest
		}
	}
	for i, w := range want {
		part, rest, ok := CutPart(body)
		if !ok || !bytes.Equal(part, w) || cap(part) != len(part) {
			t.Fatalf("part %d is %q, %v", i, part, ok)
		}
		body = rest
	}
	if _, _, ok := CutPart(body); ok || len(body) != 0 {
		t.Errorf("%d bytes are left", len(body))
	}
	if _, _, ok := CutPart([]byte{0xFF, 0xFF, 0xFF, 0xFF, 1}); ok {
		t.Error("a part is longer than its body")
	}
}
