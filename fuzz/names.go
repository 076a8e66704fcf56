package fuzz

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/kvferry/kvferry/protocol"
)

// The targets of texts with a single meaning: an accepted text is written as the same text again.
var (
	Key = statelessTarget("Key", checkKey, textSeeds(
		"m@2@0@1f@bfloat16", "m@2@0@-2a@bfloat16", "org/model@8@7@00ff@fp8_e4m3fn@user%u1@tier%a%b",
		"vllm@m@2@0@1f@half", "m@2@0@1f@half@17", "m@02@0@1F@half", "@@@@", "m@2@0@1f@half@%", "\xff@1@0@0@half",
		"m@2@0@1f@half@kvft%9f86d081884c7d65", "m@2@0@1f@half@user%u1@kvft%9f86d081884c7d65", "m@2@0@1f@half@kvft%0000000000000000",
		"m@2@0@1f@half@kvft%9f86d081884c7d65@user%u1", "m@2@0@1f@half@kvft%9F86d081884c7d65", "m@2@0@1f@half@kvft%1@kvft%2",
	))
	PullID = statelessTarget("PullID", checkPullID, textSeeds(
		"0123456789abcdef0123456789abcdef", "0123456789ABCDEF0123456789abcdef", "0123456789abcdef0123456789abcde",
		"01234567-89ab-cdef-0123-456789abcdef", "0123456789abcdef0123456789abcdeg", "",
	))
	Endpoint = statelessTarget("Endpoint", checkEndpoint, textSeeds(
		"10.0.0.1:7300", "[fe80::1%eth0]:65535", "::1:80", "tcp://h:1", "h:0", "h:+1", "[h]:1", ":1", "h:01",
	))
)

func checkKey(b []byte) error {
	k, err := protocol.ParseKey(b)
	if check := protocol.CheckKey(b, len(b)); (check == nil) != (err == nil) {
		return fmt.Errorf("ParseKey: %v, CheckKey: %v", err, check) // one of the two is nil
	}
	if err != nil {
		var refused *protocol.KeyError
		if !errors.As(err, &refused) || refused.Code == 0 || len(err.Error()) > 1024 {
			return fmt.Errorf("got %#v", err)
		}
		return nil
	}
	if got := k.String(); got != string(b) {
		return fmt.Errorf("%q is written as %q", b, got)
	}
	if err := k.Validate(); err != nil {
		return fmt.Errorf("%q: %w", b, err)
	}
	if protocol.CheckKey(b, len(b)-1) == nil {
		return fmt.Errorf("%q passes a smaller bound", b)
	}
	return checkTenant(b, &k)
}

// checkTenant compares the tenant of a valid key with another parser, and checks that the tenant has no other spelling.
func checkTenant(b []byte, k *protocol.Key) error {
	want := uint64(0)
	for i, tag := range k.Tags {
		if tag.Name != "kvft" {
			continue
		}
		v, err := strconv.ParseUint(tag.Value, 16, 64)
		if err != nil || v == 0 || fmt.Sprintf("%016x", v) != tag.Value || i != len(k.Tags)-1 {
			return fmt.Errorf("%q is accepted with the tag %+v", b, tag)
		}
		want = v
	}
	if got := protocol.TenantOf(b); got != want {
		return fmt.Errorf("%q has the tenant %x, want %x", b, got, want)
	}
	if layer := protocol.AppendLayerKey(nil, b, 3); protocol.TenantOf(layer) != want {
		return fmt.Errorf("a layer of %q has the tenant %x", b, protocol.TenantOf(layer))
	}
	if own := protocol.AppendTenant(nil, want); !bytes.HasSuffix(b, own) {
		return fmt.Errorf("%q does not end with %q", b, own)
	}
	return nil
}

// checkPullID compares ParsePullID with another decoder of hex.
func checkPullID(b []byte) error {
	id, ok := protocol.ParsePullID(b)
	want, err := hex.DecodeString(string(b))
	if one := err == nil && len(want) == len(id) && hex.EncodeToString(want) == string(b); ok != one {
		return fmt.Errorf("%q: accepted is %v", b, ok)
	}
	if ok && (id.String() != string(b) || !bytes.Equal(id[:], want)) {
		return fmt.Errorf("%q is %x, written %s", b, id[:], id)
	}
	return nil
}

// checkEndpoint does not compare the texts, because an endpoint may have leading zeros in the port.
func checkEndpoint(b []byte) error {
	e, err := protocol.ParseEndpoint(string(b))
	if err != nil {
		var refused *protocol.EndpointError
		if !errors.As(err, &refused) {
			return fmt.Errorf("got %#v", err)
		}
		return nil
	}
	if again, err := protocol.ParseEndpoint(e.String()); err != nil || again != e {
		return fmt.Errorf("%q is %+v, written %q, read as %+v, %w", b, e, e, again, err)
	}
	return nil
}
