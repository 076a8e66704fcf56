package protocol

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/protocol/foreign"
)

// counted decides by a fixed sequence, of which each number is another walk through all choices.
func counted(n uint64) foreign.Draw {
	return func(below int) int {
		n = n*6364136223846793005 + 1442695040888963407
		return int(n >> 33 % uint64(below))
	}
}

// Whatever form of a message another encoder writes, every reader of this package takes it for what it is.
func TestForeignFormsMeanTheSame(t *testing.T) {
	var used [tags]Message
	for tag := TagNone + 1; tag < tags; tag++ {
		used[tag] = NewMessage(tag)
	}
	rapid.Check(t, func(t *rapid.T) {
		m := genMessage.Draw(t, "message")
		forms := foreign.Forms(rapid.Uint8Range(1, uint8(foreign.All)).Draw(t, "forms"))
		payload, ok := foreign.Append(nil, m.Append(nil), forms, counted(rapid.Uint64().Draw(t, "choices")))
		if !ok {
			t.Fatalf("%s is no message to an encoder", text(m))
		}
		if err := sameMessage(m, payload, used[tagOf(m)]); err != nil {
			t.Fatalf("%x: %v", payload, err)
		}
	})
}

// The same of each golden vector and each form alone, so that every form of every field of every kind of message is
// tried.
func TestEachForeignFormOfEachMessage(t *testing.T) {
	walks := uint64(60)
	if testing.Short() {
		walks = 15
	}
	eachVector(t, func(t *testing.T, m Message, payload []byte) {
		for form := foreign.Numbers; form <= foreign.Unknown; form <<= 1 {
			for walk := range walks {
				b, ok := foreign.Append(nil, payload, form, counted(walk))
				if !ok {
					t.Fatalf("%x is no message to an encoder", payload)
				}
				if err := sameMessage(m, b, NewMessage(tagOf(m))); err != nil {
					t.Fatalf("form %b: %x: %v", form, b, err)
				}
			}
		}
	})
}

// sameMessage says what of this package does not read the payload as m.
func sameMessage(m Message, payload []byte, into Message) error {
	want := tagOf(m)
	if tag, err := PeekTag(payload, nil); err != nil || tag != want {
		return errors.Join(errors.New("PeekTag finds "+tag.String()), err)
	}
	for tag := TagNone + 1; tag < tags; tag++ {
		if HasTag(payload, tag, nil) != (tag == want) || tag == want && !MayHaveTag(payload, tag, nil) {
			return errors.New("HasTag or MayBe does not agree about " + tag.String())
		}
	}
	if err := into.Decode(payload, nil); err != nil {
		return err
	}
	if text(into) != text(m) {
		return errors.New(text(into) + " instead of " + text(m))
	}
	if who := ProgramOf(payload, nil); (who != "") != (want.Family() != FamilyPD) {
		return errors.New("taken for one of " + who)
	}
	_, err := Describe(payload, nil)
	return err
}

// A field that is given twice is refused by its name, wherever it stands and however it is written. Of what stands
// inside a list only the decoder knows the fields.
func TestRepeatedFieldsAreRefusedInAnyForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := genMessage.Draw(t, "message")
		forms := foreign.Forms(rapid.Uint8Range(0, uint8(foreign.All)).Draw(t, "forms"))
		payload, field, ok := foreign.Repeat(nil, m.Append(nil), forms, counted(rapid.Uint64().Draw(t, "choices")))
		if !ok {
			t.Fatalf("%s is no message to an encoder", text(m))
		}
		_, err := decode(m, payload)
		var refused *DecodeError
		if !errors.As(err, &refused) || refused.Code != DecodeDuplicateField || refused.Field != field {
			t.Fatalf("%x: got %v, want a duplicate %s", payload, err, field)
		}
		if field == tagField {
			if _, err := PeekTag(payload, nil); err == nil {
				t.Fatalf("PeekTag takes %x", payload)
			}
		}
	})
}

// The names of fields that nobody knows are nobody's.
func TestForeignFieldsAreUnknown(t *testing.T) {
	for name, m := range golden {
		payload := m.Append(nil)
		for walk := range uint64(200) {
			b, _ := foreign.Append(nil, payload, foreign.Unknown, counted(walk))
			for _, e := range entries(t, b) {
				known := slices.ContainsFunc(entries(t, payload), func(o entry) bool { return o.name == e.name })
				if declared := slices.Contains(schemas[tagOf(m)].names, e.name); declared && !known {
					t.Fatalf("%s: field %q is added, which the message declares", name, e.name)
				}
			}
		}
	}
}
