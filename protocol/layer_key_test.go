package protocol

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestLayerKeys(t *testing.T) {
	var c LayerKeyChecker
	for _, key := range []string{
		"m@1@0@1f@half", "m@2@1@-2a@bfloat16", "m@1@0@1f@half@a%b", "org/m@1@0@00ff@half@a%b@c%",
	} {
		for _, layer := range []uint32{0, 7, 31, LayersMax - 1} {
			text := AppendLayerKey(nil, []byte(key), layer)
			if CheckKey(text, 100) == nil {
				t.Errorf("%s is taken for a chunk's key", text)
			}
			chunk, got, err := c.Split(text, 100)
			if err != nil || got != layer || string(chunk) != key {
				t.Errorf("%s: layer %d of %s, %v; want layer %d of %s", text, got, chunk, err, layer, key)
			}
		}
	}
	if got := string(AppendLayerKey(nil, []byte("m@1@0@1f@half@a%b"), 3)); got != "m@1@0@1f@half@3@a%b" {
		t.Errorf("the layer stands at another place: %s", got)
	}
	for text, code := range map[string]KeyCode{
		"":                         KeyLayer,
		"m@1@0@1f@half":            KeyLayer,
		"m@1@0@1f@half@":           KeyLayer,
		"m@1@0@1f@half@a%b":        KeyLayer,
		"m@1@0@1f@half@03":         KeyLayer,
		"m@1@0@1f@half@1024":       KeyLayer,
		"m@1@0@1f@half@3@4":        KeyTags,
		"m@1@0@1F@half@3":          KeyHash,
		"m@1@0@1f@fp8@3":           KeyDtype,
		"m@1@0@1f@half@3@abc%defg": KeyTooLong,
	} {
		var e *KeyError
		if _, _, err := c.Split([]byte(text), 20); !errors.As(err, &e) || e.Code != code {
			t.Errorf("%q: %v; want code %d", text, err, code)
		}
	}
}

// Each key of a batch is judged as if it came alone, whatever came before it.
func TestLayerKeysOneAfterTheOther(t *testing.T) {
	var three LayerKeyChecker
	for _, key := range []string{"m@1@0@1f@half@0", "m@1@0@2f@half@0", "m@1@0@3f@hale@0"} {
		if _, _, err := three.Split([]byte(key), 100); (err == nil) != (key != "m@1@0@3f@hale@0") {
			t.Errorf("%s behind two that are right: %v", key, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		var c LayerKeyChecker
		for range rapid.IntRange(1, 8).Draw(t, "keys") {
			key := rapid.SampledFrom([]string{
				"m@1@0@1f@half@0", "m@1@0@2f@half@1", "m@1@0@3f@hale@1", "m@1@0@1F@half@1", "n@1@0@1f@half@1", "m@1@0@1f@half@x",
			}).Draw(t, "key")
			var alone LayerKeyChecker
			want, wantLayer, wantErr := alone.Split([]byte(key), 100)
			got, layer, err := c.Split([]byte(key), 100)
			if string(got) != string(want) || layer != wantLayer || (err == nil) != (wantErr == nil) {
				t.Fatalf("%s: layer %d of %s, %v; alone layer %d of %s, %v", key, layer, got, err, wantLayer, want, wantErr)
			}
		}
	})
}
