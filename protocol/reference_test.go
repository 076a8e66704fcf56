package protocol

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

func TestEndpoints(t *testing.T) {
	for text, want := range map[string]Endpoint{
		"10.0.0.1:7300":        {"10.0.0.1", 7300},
		"node-3.rack_2:1":      {"node-3.rack_2", 1},
		"[fe80::1%eth0]:65535": {"fe80::1%eth0", 65535},
		"[::1]:80":             {"::1", 80},
	} {
		got, err := ParseEndpoint(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: got %+v written %s, %v", text, got, got, err)
		}
	}
	for text, says := range map[string]string{
		"tcp://10.0.0.1:7300": "leave out the scheme",
		"10.0.0.1":            "write host:port",
		"":                    "write host:port",
		":7300":               "name a host",
		"[]:7300":             "brackets for IPv6 addresses only",
		"::1:7300":            "in brackets",
		"[10.0.0.1]:7300":     "brackets for IPv6 addresses only",
		"10.0.0.1:":           "1 to 65535",
		"10.0.0.1:0":          "1 to 65535",
		"10.0.0.1:65536":      "1 to 65535",
		"10.0.0.1:+80":        "1 to 65535",
		"10.0.0.1:-1":         "1 to 65535",
		"10.0.0.1: 80":        "1 to 65535",
		"a b:80":              "without spaces",
		"a/b:80":              "without spaces",
		"[::1:80":             "in brackets",
		"a]:80":               "without spaces",
	} {
		_, err := ParseEndpoint(text)
		var refused *EndpointError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want it to say %q", text, err, says)
		}
	}
}

// The reference takes these two for one peer, and writes KV of one to the other.
func TestJoinedIDIsAmbiguousAndEndpointsAreNot(t *testing.T) {
	a, b := Endpoint{"10.0.0.1", 17300}, Endpoint{"10.0.0.11", 7300}
	if JoinedID(a.Host, a.Port) != JoinedID(b.Host, b.Port) {
		t.Error("the joined ids differ; LMCache's do not")
	}
	if got := JoinedID("10.0.0.2", 7300); got != "10.0.0.27300" {
		t.Error(got)
	}
	if a == b || a.String() == b.String() {
		t.Error("the endpoints are the same")
	}
}

func TestUUIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := genUUID.Draw(t, "uuid")
		written := appendUUID(nil, u)
		if want := append([]byte{0xd9, 36}, u.String()...); !slices.Equal(written, want) {
			t.Fatalf("got %q, want %q", written, want)
		}
		for _, s := range []string{u.String(), strings.ToUpper(u.String())} {
			if got, ok := parseUUID([]byte(s)); !ok || got != u {
				t.Fatalf("%s is read as %v, %v", s, got, ok)
			}
		}
		// One byte changed: still read only if the library reads it, to the same.
		b := []byte(u.String())
		b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		want, err := uuid.Parse(string(b))
		if got, ok := parseUUID(b); ok != (err == nil) || ok && got != UUID(want) {
			t.Fatalf("%q: got %v, %v, library %v, %v", b, got, ok, want, err)
		}
	})
}

// A pull id has one text. What another decoder of hex makes of it is the same, where it takes no more.
func TestPullIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := genPullID.Draw(t, "id")
		text := hex.EncodeToString(id[:])
		if id.String() != text || string(appendPullID(nil, id)) != "\xd9\x20"+text {
			t.Fatalf("%x is written %s, want %s", id[:], id, text)
		}
		b := []byte(text)
		if got, ok := ParsePullID(b); !ok || got != id {
			t.Fatalf("%s is read as %v, %v", text, got, ok)
		}
		b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		got, ok := ParsePullID(b)
		want, err := hex.DecodeString(string(b))
		lower := err == nil && strings.ToLower(string(b)) == string(b)
		if ok != lower || ok && !slices.Equal(got[:], want) {
			t.Fatalf("%q: got %v, %v, library %x, %v", b, got, ok, want, err)
		}
	})
	for _, text := range []string{"", "0", strings.Repeat("0", 31), strings.Repeat("0", 33), uuid1.String(),
		strings.Repeat("A", 32)} {
		if got, ok := ParsePullID([]byte(text)); ok {
			t.Errorf("%q is read as %v", text, got)
		}
	}
	a := NewPullID(rand.NewChaCha8([32]byte{1}))
	if b := NewPullID(rand.NewChaCha8([32]byte{1})); a != b || a == (PullID{}) || uuid.UUID(a).Version() != 4 {
		t.Errorf("got %v and %v", a, b)
	}
}

func TestNewUUIDFollowsItsGenerator(t *testing.T) {
	for seed := range byte(64) {
		want, err := uuid.NewRandomFromReader(rand.NewChaCha8([32]byte{seed}))
		if got := NewUUID(rand.NewChaCha8([32]byte{seed})); err != nil || got != UUID(want) {
			t.Errorf("got %v, the library %v, %v", got, want, err)
		}
	}
	defer func() {
		if s, _ := recover().(string); !strings.HasPrefix(s, "BUG: ") {
			t.Errorf("a failing generator gives %q", s)
		}
	}()
	NewUUID(strings.NewReader("short"))
}

func TestBufferPages(t *testing.T) {
	b := BufferInfo{UUID: uuid1, Ptr: 4096, Size: 640, PageSize: 64}
	if !b.Valid() || b.PageCount() != 10 {
		t.Errorf("valid %v, %d pages", b.Valid(), b.PageCount())
	}
	for index, want := range map[int64]uint64{0: 0, 1: 64, 9: 576} {
		if got, ok := b.PageOffset(index); !ok || got != want {
			t.Errorf("page %d at %d, %v", index, got, ok)
		}
	}
	for _, index := range []int64{-1, 10, 1<<63 - 1, -1 << 63} {
		if got, ok := b.PageOffset(index); ok {
			t.Errorf("page %d at %d", index, got)
		}
	}
	for name, bad := range map[string]BufferInfo{
		"no page size": {Size: 640},
		"no bytes":     {PageSize: 64},
		"partial page": {Size: 650, PageSize: 64},
		"wraps":        {Ptr: 1<<64 - 64, Size: 128, PageSize: 64},
	} {
		if bad.Valid() {
			t.Errorf("%s: valid", name)
		}
	}
	if _, ok := (&BufferInfo{Size: 640}).PageOffset(0); ok {
		t.Error("a buffer without page size has pages")
	}
	last := BufferInfo{Ptr: 1<<63 - 1, Size: 1 << 63, PageSize: 1 << 62}
	if got, ok := last.PageOffset(1); !ok || got != 1<<62 || !last.Valid() {
		t.Errorf("the last page is at %d, %v", got, ok)
	}
}

func TestReplyForms(t *testing.T) {
	for f := FormAscend; f < replyForms; f++ {
		if got, ok := ParseReplyForm(f.String()); !ok || got != f {
			t.Errorf("%v is read as %v, %v", f, got, ok)
		}
	}
	if _, ok := ParseReplyForm("async"); ok || replyForms.Valid() {
		t.Error("an unknown form is known")
	}
}
