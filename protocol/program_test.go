package protocol

import "testing"

// What other programs say first is known for what it is, by bytes that are theirs.
func TestSpeakersOfOtherKinds(t *testing.T) {
	tagged := func(tag string, fields ...byte) []byte {
		n := byte(1)
		if len(fields) > 0 {
			n = 2
		}
		return append(appendStr(appendStr([]byte{0x80 | n}, tagField), []byte(tag)), fields...)
	}
	for _, c := range []struct {
		body []byte
		want string
	}{
		{
			tagged("NixlInitRequest", append(appendStr(nil, "local_meta_bytes"), 0xC4, 2, 1, 2)...),
			"lmcache, transfer_channel nixl",
		},
		{tagged("MooncakeInitRequest"), "lmcache, transfer_channel mooncake"},
		{tagged("HcclInitRequest"), "lmcache-ascend, transfer_channel hccl"},
		{tagged("HcclErrorResponse", append(appendStr(nil, "ok"), 0xC2)...), "lmcache-ascend, transfer_channel hccl"},
		{tagged("PySocketInitRequest"), "lmcache, transfer_channel py_socket"},
		{tagged("P2PInitSideMsg"), "lmcache, sharing between peers"},
		{tagged("HeartbeatMsg"), "lmcache, a worker of its controller"},
		{tagged("KvfCall"), "kvferry, an engine or the agent of its host"},
		{tagged("Nobody"), ""},
		{tagged("HixlInitRequest"), ""},
		{tagged("NixlInitRequest")[:7], ""},
		{[]byte("\x81\xa1x\x01"), ""},
		{[]byte("GET / HTTP/1.1\r\n"), ""},
		{nil, ""},
	} {
		if got := ProgramOf(c.body, nil); got != c.want {
			t.Errorf("%q is said by %q, want %q", c.body, got, c.want)
		}
	}
}
