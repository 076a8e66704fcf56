package protocol

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// The tenant of a key has one spelling: all others are malformed, or are tags that do not name a tenant.
func TestTenantOfKey(t *testing.T) {
	const key, a = "m@2@0@1f@half", "@kvft%9f86d081884c7d65"
	for text, want := range map[string]uint64{
		key: 0, key + a: 0x9f86d081884c7d65, key + "@user%u1" + a: 0x9f86d081884c7d65, key + "@kvft%0000000000000001": 1,
		key + "@KVFT%9f86d081884c7d65": 0, key + "@kvftx%9f86d081884c7d65": 0, key + "@user%kvft%9f86d081884c7d65": 0,
		"kvft%9f86d081884c7d65@2@0@1f@half": 0,
	} {
		if err := CheckKey([]byte(text), 512); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got := TenantOf([]byte(text)); got != want {
			t.Errorf("%s: tenant %x, want %x", text, got, want)
		}
	}
	for _, tags := range []string{
		a + "@user%u1", a + a, a + "@kvft%0000000000000001", "@kvft%9F86d081884c7d65", "@kvft%9f86d081884c7d6", "@kvft%9f86d081884c7d650",
		"@kvft%0000000000000000", "@kvft%", "@kvft%default", a + " ", a + "@17",
	} {
		var refused *KeyError
		if err := CheckKey([]byte(key+tags), 512); !errors.As(err, &refused) || refused.Code != KeyTenant {
			t.Errorf("%s: got %v", tags, err)
		}
	}
	if got := AppendTenant([]byte(key), 0x9f86d081884c7d65); string(got) != key+a {
		t.Errorf("written %s", got)
	}
	if got := AppendTenant([]byte(key), 0); string(got) != key {
		t.Errorf("written %s", got)
	}
	for _, text := range []string{"", "@kvft%9f86d081884c7d6", "kvft%9f86d081884c7d65"} {
		if TenantOf([]byte(text)) != 0 {
			t.Errorf("%q has a tenant", text)
		}
	}
}

// The key of a layer has the tenant of its chunk, and the layers of a batch may be of several tenants.
func TestTenantOfLayerKey(t *testing.T) {
	var check LayerKeyChecker
	for _, tenant := range []uint64{0, 7, 1 << 63, 7, 0} {
		chunk := AppendTenant([]byte("m@2@0@1f@half@user%u1"), tenant)
		key := AppendLayerKey(nil, chunk, 17)
		got, layer, err := check.Split(key, 512)
		if err != nil || string(got) != string(chunk) || layer != 17 || TenantOf(key) != tenant || TenantOf(got) != tenant {
			t.Errorf("%s: chunk %s, layer %d, tenant %x, %v", key, got, layer, TenantOf(key), err)
		}
	}
	if _, _, err := check.Split([]byte("m@2@0@1f@half@kvft%9f86d081884c7d65@17"), 512); err == nil {
		t.Error("a layer behind the tenant is read")
	}
}

// A batch of keys is of one tenant, whichever keys are checked in one pass and whichever in parts.
func TestBatchOfOneTenant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var check KeyChecker
		first := -1
		for i := range rapid.IntRange(1, 8).Draw(t, "keys") {
			tenant := rapid.IntRange(0, 2).Draw(t, "tenant")
			key := AppendTenant([]byte("m@"+rapid.SampledFrom([]string{"2", "3", "x"}).Draw(t, "world")+"@0@1f@half"), uint64(tenant))
			valid := CheckKey(key, 512) == nil
			if valid && first < 0 {
				first = tenant
			}
			if got := check.Check(key, 512) == nil; got != (valid && tenant == first) {
				t.Fatalf("key %d, %s, accepted is %v", i, key, got)
			}
		}
	})
}

// Directories know a chunk of a tenant by another hash than the chunk with the same hash of another tenant; they know
// chunks of the default tenant as controllers know them that never heard of tenants.
func TestChunkHashOfTenant(t *testing.T) {
	seen := map[ChunkHash]string{}
	for _, digits := range []string{"0", "1", "-1", "abc", "ffffffffffffffff"} {
		for _, tenant := range []uint64{0, 1, 0xabc, 1<<64 - 2} {
			key := AppendTenant([]byte("m@2@0@"+digits+"@half"), tenant)
			h, ok := ChunkHashOfKey(key)
			if plain, _ := ParseChunkHash(digits); !ok || (tenant == 0) != (h == plain) {
				t.Errorf("%s: %v, %v", key, h, ok)
			}
			// -1 and 2^64-1 are one number of 64 bits, and no engine has both kinds of hashes.
			if other := seen[h]; other != "" && digits != "ffffffffffffffff" {
				t.Errorf("%s and %s have the hash %v", other, key, h)
			}
			seen[h] = string(key)
		}
	}
}
