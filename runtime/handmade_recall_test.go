//go:build cgo

package runtime_test

import (
	"bytes"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
)

// A plain LMCache prefill asks by a REQ socket of libzmq what is cached. Nobody could take back what it would read
// without a lease, so it is told of nothing, in the two fields that it knows, as by a decoder that has nothing. So is
// who sends bytes that are no such question, or asks in the name of a stranger with our fields, who is told why beside.
// Nothing is leased to any of them, and our own prefill recalls as before.
func TestPlainAskerIsToldOfNothing(t *testing.T) {
	s, r := open(t, recallingConfig(t, "shm", "")), open(t, recalledConfig(t, "shm", ""))
	chunks := keysOf("plain", 1)
	bring(t, s, r, "first", chunks, 0)
	at := recallPeerOf(r)
	query := effects.Addr{Host: at.Host, Port: at.QueryPort}
	none := []byte("\x83" + fixstr("type") + fixstr("CacheQueryResponse") + fixstr("cached_keys") + "\x90" +
		fixstr("cached_indexes") + "\x90")
	plain := []byte("\x82" + fixstr("type") + fixstr("CacheQueryRequest") + fixstr("keys") + "\x91" + str8(chunks[0]))
	for what, body := range map[string][]byte{
		"a plain question": plain,
		"nothing":          {},
		"no msgpack":       []byte("\xc1\xc1\xc1"),
		"another message":  []byte("\x82" + fixstr("type") + fixstr("ProxyNotif") + fixstr("req_id") + fixstr("r")),
		"half a question":  plain[:len(plain)-4],
		"no keys":          []byte("\x81" + fixstr("type") + fixstr("CacheQueryRequest")),
		"a key of 1 MiB": append([]byte("\x82"+fixstr("type")+fixstr("CacheQueryRequest")+fixstr("keys")+
			"\x91\xdb\x00\x10\x00\x00"), bytes.Repeat([]byte("k"), 1<<20)...),
		"as many keys as fit 32 bits": []byte("\x82" + fixstr("type") + fixstr("CacheQueryRequest") + fixstr("keys") +
			"\xdd\xff\xff\xff\xff"),
	} {
		if got := askPlainly(t, query, body)[0]; !bytes.Equal(got, none) {
			t.Errorf("%s is answered with %q, want %q", what, got, none)
		}
	}
	stranger := askPlainly(t, query, []byte("\x86"+fixstr("type")+fixstr("CacheQueryRequest")+fixstr("keys")+"\x91"+
		str8(chunks[0])+fixstr("kvf_v")+"\x02"+fixstr("kvf_inc")+str8(uuidText(s.Incarnation()))+
		fixstr("kvf_to")+str8(uuidText(r.Incarnation()))+fixstr("kvf_op")+"\x07"))[0]
	if !bytes.HasPrefix(valueAfter(t, stranger, "cached_keys"), []byte("\x90")) || valueAfter(t, stranger, "kvf_code")[0] == 0 {
		t.Errorf("a stranger is answered with %q", stranger)
	}
	if lent := r.Stats().PagesLeased; lent != 0 {
		t.Errorf("%d pages are lent", lent)
	}
	wantFact(t, r, effects.FactMalformed, effects.Malformed, 7)
	wantFact(t, r, effects.FactRecalled, effects.Stale, 1)
	wantRecalled(t, s, at, chunks, 1, pageBytes)
	wantFact(t, r, effects.FactRecalled, effects.OK, 1)
	wantFact(t, s, effects.FactRecallEnded, effects.OK, 1)
	mustClose(t, s)
	mustClose(t, r)
}

// wantFact checks how often a node observed something.
func wantFact(t *testing.T, n *runtime.Node, fact effects.Fact, code effects.Code, times uint64) {
	t.Helper()
	for _, c := range n.FactCounts() {
		if c.Fact == fact && c.Code == code && c.Times == times {
			return
		}
	}
	t.Errorf("%v as %v is not counted %d times: %v", fact, code, times, n.FactCounts())
}
