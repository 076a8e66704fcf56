package protocol

import (
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"
)

func TestDescribe(t *testing.T) {
	datadriven.RunTest(t, "testdata/describe.txt", func(t *testing.T, d *datadriven.TestData) string {
		out, err := Describe(unhex(t, d.Input), nil)
		if err != nil {
			out += "error: " + err.Error() + "\n"
		}
		return out
	})
}

// Describe takes any bytes, agrees with the decoders about them, and stays in proportion.
func TestDescribeAnyBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		payload := genMessage.Draw(t, "message").Append(nil)
		for range rapid.IntRange(0, 4).Draw(t, "mutations") {
			payload[rapid.IntRange(0, len(payload)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		out, err := Describe(payload, nil)
		if len(out) > 64*len(payload)+64 {
			t.Fatalf("%d bytes for %d", len(out), len(payload))
		}
		tag, peek := PeekTag(payload, nil)
		if peek != nil {
			if err == nil {
				t.Fatalf("described what PeekTag refuses: %v", peek)
			}
			return
		}
		if decode := NewMessage(tag).Decode(payload, nil); (decode == nil) != (err == nil) {
			t.Fatalf("Describe says %v, Decode %v", err, decode)
		}
	})
}
