package protocol

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestKeysParse(t *testing.T) {
	tests := []struct {
		text string
		want Key
	}{
		{"m@2@0@1f@bfloat16", Key{Model: "m", WorldSize: 2, Hash: "1f", Dtype: DtypeBFloat16}},
		{"m@2@0@-2a@bfloat16", Key{Model: "m", WorldSize: 2, Hash: "-2a", Dtype: DtypeBFloat16}},
		{"org/Model-70B v2%é@8@7@0@half", Key{Model: "org/Model-70B v2%é", WorldSize: 8, WorkerID: 7, Hash: "0",
			Dtype: DtypeHalf}},
		{"m@1@-1@00ff@fp8_e5m2", Key{Model: "m", WorldSize: 1, WorkerID: -1, Hash: "00ff", Dtype: DtypeFP8E5M2}},
		{"m@1@0@" + strings.Repeat("9c", 32) + "@float",
			Key{Model: "m", WorldSize: 1, Hash: strings.Repeat("9c", 32), Dtype: DtypeFloat}},
		{"m@1@0@a@int8@user%u1", Key{Model: "m", WorldSize: 1, Hash: "a", Dtype: DtypeInt8, Tags: []KeyTag{{"user", "u1"}}}},
		{"m@1@0@a@int8@a%@b%c%d", Key{Model: "m", WorldSize: 1, Hash: "a", Dtype: DtypeInt8,
			Tags: []KeyTag{{"a", ""}, {"b", "c%d"}}}},
		{"m@2147483647@2147483647@a@int8", Key{Model: "m", WorldSize: 1<<31 - 1, WorkerID: 1<<31 - 1, Hash: "a",
			Dtype: DtypeInt8}},
	}
	for _, test := range tests {
		got, err := ParseKey([]byte(test.text))
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		if fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s: got %+v, want %+v", test.text, got, test.want)
		}
		if got.String() != test.text {
			t.Errorf("%s is written as %s", test.text, got.String())
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%s: Validate: %v", test.text, err)
		}
		if err := CheckKey([]byte(test.text), len(test.text)); err != nil {
			t.Errorf("%s: CheckKey: %v", test.text, err)
		}
	}
}

func TestKeysRefused(t *testing.T) {
	tests := []struct {
		text string
		code KeyCode
		says string
	}{
		{"", KeyEmpty, ""},
		{"m@2@0@1f@half@\xff%x", KeyEncoding, ""},
		{"m@2@0@1f", KeyParts, "write model@world_size@worker_id@hash@dtype"},
		{"no separators", KeyParts, ""},
		{"@2@0@1f@half", KeyModel, ""},
		{"m@0@0@1f@half", KeyWorldSize, `world_size "0"`},
		{"m@02@0@1f@half", KeyWorldSize, ""},
		{"m@+2@0@1f@half", KeyWorldSize, ""},
		{"m@2147483648@0@1f@half", KeyWorldSize, ""},
		{"m@99999999999999999999@0@1f@half", KeyWorldSize, ""},
		{"m@@0@1f@half", KeyWorldSize, ""},
		{"m@2@@1f@half", KeyWorkerID, ""},
		{"m@2@-0@1f@half", KeyWorkerID, `worker_id "-0"`},
		{"m@2@-@1f@half", KeyWorkerID, ""},
		{"m@2@1_0@1f@half", KeyWorkerID, ""},
		{"m@2@0@@half", KeyHash, ""},
		{"m@2@0@-@half", KeyHash, ""},
		{"m@2@0@-01@half", KeyHash, ""},
		{"m@2@0@0x1f@half", KeyHash, `hash "0x1f"`},
		{"m@2@0@1F@half", KeyHash, ""},
		{"m@2@0@1:@half", KeyHash, ""},
		{"m@2@0@1f@torch.half", KeyDtype, ""},
		{"m@2@0@1f@fp8", KeyDtype, ""}, // A name of revisions that wrote another key.
		{"m@2@0@1f@", KeyDtype, ""},
		{"vllm@m@2@0@1f@half", KeyWorldSize, ""}, // V2: the engine's name comes first.
		{"m@2@0@1f@half@", KeyTags, ""},
		{"m@2@0@1f@half@x", KeyTags, ""},
		{"m@2@0@1f@half@%x", KeyTags, ""},
		{"m@2@0@1f@half@a%b@17", KeyTags, "single layers"}, // A layer's key.
		{"m@2@0@1f@half@kvft%9F86d081884c7d65", KeyTenant, `tenant "kvft%9F86`},
	}
	hit := map[KeyCode]bool{KeyTooLong: true}
	for _, test := range tests {
		_, parse := ParseKey([]byte(test.text))
		check := CheckKey([]byte(test.text), 512)
		for _, err := range []error{parse, check} {
			var refused *KeyError
			if !errors.As(err, &refused) || refused.Code != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%q: got %v, want code %d that says %q", test.text, err, test.code, test.says)
			}
		}
		hit[test.code] = true
	}
	var refused *KeyError
	if err := CheckKey([]byte("m@2@0@1f@half"), 12); !errors.As(err, &refused) || refused.Code != KeyTooLong {
		t.Errorf("a byte more than allowed: %v", err)
	}
	for c := KeyCode(1); c < keyCodes; c++ {
		if !hit[c] && c != KeyLayer { // Of layers' keys: TestLayerKeys.
			t.Errorf("no test for code %d", c)
		}
	}
}

// Keys are compared as text. So a text that is read is the text that is written, and a key whose
// text would mean another key is not valid.
func TestKeyTextIsTheKey(t *testing.T) {
	part := rapid.StringOf(rapid.SampledFrom([]rune("ab19-@%é_ ")))
	rapid.Check(t, func(t *rapid.T) {
		k := Key{
			Model:     part.Draw(t, "model"),
			WorldSize: rapid.Uint32().Draw(t, "world"),
			WorkerID:  rapid.Int32().Draw(t, "worker"),
			Hash:      rapid.OneOf(part, rapid.StringMatching(`-?[0-9a-f]{1,64}`)).Draw(t, "hash"),
			Dtype:     Dtype(rapid.Uint8Range(0, uint8(dtypes)).Draw(t, "dtype")),
		}
		for range rapid.IntRange(0, 2).Draw(t, "tags") {
			k.Tags = append(k.Tags, KeyTag{part.Draw(t, "name"), part.Draw(t, "value")})
		}
		written := k.String()
		got, err := ParseKey([]byte(written))
		if valid := k.Validate() == nil; valid && err != nil {
			t.Fatalf("%+v is valid, but %q: %v", k, written, err)
		} else if same := err == nil && fmt.Sprintf("%#v", got) == fmt.Sprintf("%#v", k); same != valid {
			t.Fatalf("%+v valid: %v, read back as %+v, %v", k, valid, got, err)
		}
		if err == nil && got.String() != written {
			t.Fatalf("%q is read, then written as %q", written, got.String())
		}
		if (CheckKey([]byte(written), len(written)) == nil) != (err == nil) {
			t.Fatalf("%q: CheckKey and ParseKey differ", written)
		}
	})
}
