package protocol

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawUUID(t *rapid.T) (u UUID) {
	copy(u[:], rapid.SliceOfN(rapid.Byte(), len(u), len(u)).Draw(t, "uuid"))
	return u
}

// drawPush draws a message of a kind that is ours.
func drawPush(t *rapid.T, of Message) Message {
	n, small := rapid.Uint64(), rapid.Uint32()
	instant := rapid.Int64Min(0)
	text := rapid.Custom(func(t *rapid.T) []byte { return []byte(rapid.StringN(0, 20, 80).Draw(t, "text")) })
	stamps := func() Stamps { return Stamps{instant.Draw(t, "clock"), instant.Draw(t, "echo")} }
	switch of.(type) {
	case *PushRegistration:
		m := drawNixl(t, of).(*PushRegistration)
		if m.HasExt = rapid.Bool().Draw(t, "ours"); m.HasExt {
			groups := rapid.SliceOfN(n, len(m.Blocks), len(m.Blocks))
			m.Ext = PushRegistrationExt{
				small.Draw(t, "version"), drawUUID(t), drawUUID(t), n.Draw(t, "op"), small.Draw(t, "try"), text.Draw(t, "transfer"),
				groups.Draw(t, "first"), groups.Draw(t, "ends"), n.Draw(t, "grant"), rapid.SliceOfN(n, 0, 40).Draw(t, "lives"),
				instant.Draw(t, "granted"), n.Draw(t, "lease"), n.Draw(t, "patience"),
				stamps(), rapid.Bool().Draw(t, "tail"), n.Draw(t, "caches"), text.Draw(t, "trace"),
			}
		}
		return m
	case *PushEnd:
		return &PushEnd{
			small.Draw(t, "version"), drawUUID(t), n.Draw(t, "op"), small.Draw(t, "code"), text.Draw(t, "why"), stamps(),
		}
	case *PushWithdrawal:
		return &PushWithdrawal{small.Draw(t, "version"), drawUUID(t), drawUUID(t), n.Draw(t, "op")}
	}
	names := rapid.SliceOfN(text, 0, 9)
	return &PushKeep{small.Draw(t, "version"), drawUUID(t), drawUUID(t), names.Draw(t, "keep"), names.Draw(t, "skip")}
}

// Our own words go and come back, into memory that had another one, and are not taken for each other.
func TestPushWordsRoundTrip(t *testing.T) {
	for of, word := range map[Message]PushKind{
		&PushRegistration{}: PushKindRegistration, &PushEnd{}: PushKindUnknown, &PushWithdrawal{}: PushKindWithdrawal, &PushKeep{}: PushKindKeep,
	} {
		used := reflect.New(reflect.TypeOf(of).Elem()).Interface().(Message)
		rapid.Check(t, func(t *rapid.T) {
			b := drawPush(t, of).Append(nil)
			if PushKindOf(b) != word {
				t.Fatalf("%q is taken for %v", b[:12], PushKindOf(b))
			}
			if err := used.Decode(b, nil); err != nil {
				t.Fatalf("%x: %v", b, err)
			}
			if again := used.Append(nil); !bytes.Equal(again, b) {
				t.Fatalf("%x\nis written again as\n%x", b, again)
			}
			cut := b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]
			if err := used.Decode(cut, nil); err == nil {
				t.Fatalf("%x is read", cut)
			}
		})
	}
}

// A group that is left out, be it the first one, one between or the last, is an empty list in its place: the others
// keep theirs, also in memory that had more.
func TestRegistrationsLeaveGroupsOut(t *testing.T) {
	used := new(PushRegistration)
	for _, blocks := range [][][]uint64{
		{{7, 8}, {9}, {1, 2, 3}}, {{}, {9}}, {{7}, {}}, {{7}, {}, {4, 5}}, {{}, {}, {6}}, {{}},
	} {
		m := pushRegistration()
		m.Blocks, m.HasExt, m.Ext.Version = blocks, true, 2
		for i, list := range blocks {
			first, end := uint64(0), uint64(0)
			if len(list) > 0 {
				first, end = uint64(i+1), uint64(i+1+len(list))
			}
			m.Ext.First, m.Ext.Ends = append(m.Ext.First, first), append(m.Ext.Ends, end)
		}
		if err := used.Decode(m.Append(nil), nil); err != nil {
			t.Fatalf("%v: %v", blocks, err)
		}
		if !slices.Equal(used.Ext.First, m.Ext.First) || !slices.Equal(used.Ext.Ends, m.Ext.Ends) ||
			!slices.EqualFunc(used.Blocks, blocks, slices.Equal) {
			t.Errorf("%v, %v to %v came as %v, %v to %v", blocks, m.Ext.First, m.Ext.Ends, used.Blocks, used.Ext.First,
				used.Ext.Ends)
		}
	}
}

// What is no word is refused by its field.
func TestPushWordsRefused(t *testing.T) {
	two := func(name string, n int) []byte {
		m := PushRegistration{
			RequestID: []byte("r"), EngineID: []byte("e"), Host: []byte("h"), Port: 1, TPSize: 1, Blocks: [][]uint64{{1}, {2}},
			Remote: PushProducer{PPSize: 1}, HasExt: true,
			Ext: PushRegistrationExt{Version: 2, First: []uint64{1, 1}, Ends: []uint64{2, 2}},
		}
		if list := map[string]*[]uint64{"kvf_first": &m.Ext.First, "kvf_ends": &m.Ext.Ends}[name]; list != nil {
			*list = (*list)[:n]
		}
		return m.Append(nil)
	}
	for _, c := range []struct {
		b     []byte
		m     Message
		code  DecodeCode
		field string
	}{
		{two("kvf_first", 1), &PushRegistration{}, DecodeLengthMismatch, "kvf_first"},
		{two("kvf_first", 0), &PushRegistration{}, DecodeLengthMismatch, "kvf_first"},
		{two("kvf_ends", 1), &PushRegistration{}, DecodeLengthMismatch, "kvf_ends"},
		{[]byte("PUSH_OFF:\x80"), &PushWithdrawal{}, DecodeMissingField, "kvf_v"},
		{[]byte("PUSH_OFF"), &PushWithdrawal{}, DecodeWrongTag, ""},
		{[]byte("PUSH_END:\x80"), &PushEnd{}, DecodeMissingField, "kvf_v"},
		{[]byte("PUSH_KEEP:\x81\xa5kvf_v\x02"), &PushKeep{}, DecodeMissingField, "kvf_inc"},
		{nil, &PushKeep{}, DecodeEmpty, ""},
	} {
		var e *DecodeError
		if err := c.m.Decode(c.b, nil); !errors.As(err, &e) || e.Code != c.code || c.field != "" && e.Field != c.field {
			t.Errorf("%q: %v", c.b, err)
		}
	}
	if err := new(PushRegistration).Decode(two("", 0), nil); err != nil {
		t.Error(err)
	}
}

// What a request is called without what its engine puts behind it: the table of nixl-push.md, section 3.2.
func TestNixlBase(t *testing.T) {
	for id, base := range map[string]string{
		"cmpl-12345678-aaaa-bbbb-cccc-1234567890ab-0-aaaaaaaa":   "cmpl-12345678-aaaa-bbbb-cccc-1234567890ab-0",
		"cmpl-12345678-aaaa-bbbb-cccc-1234567890ab-0":            "cmpl-12345678-aaaa-bbbb-cccc-1234567890ab-0",
		"cmpl-12345678-aaaa-bbbb-cccc-1234567890ab-1-bbbbbbbb":   "cmpl-12345678-aaaa-bbbb-cccc-1234567890ab-1",
		"chatcmpl-5621e013-40d7-4414-9bd8-7c0c0f9202af-811c5361": "chatcmpl-5621e013-40d7-4414-9bd8-7c0c0f9202af",
		"chatcmpl-5621e013-40d7-4414-9bd8-7c0c0f9202af":          "chatcmpl-5621e013-40d7-4414-9bd8-7c0c0f9202af",
		"0_cmpl-abc-0-DEADBEEF":                                  "0_cmpl-abc-0",
		"job-deadbeef":                                           "job",
		"job-deadbeef-01234567":                                  "job-deadbeef",
		"job-deadbeef-0":                                         "job-deadbeef-0",
		"cmpl-u-0-01234567-89abcdef":                             "cmpl-u-0-01234567",
		"cmpl-00000000":                                          "cmpl",
		"a-0123456":                                              "a-0123456",
		"a-012345678":                                            "a-012345678",
		"a-0123456g":                                             "a-0123456g",
		"-01234567":                                              "",
		"a-01234567\n":                                           "a-01234567\n",
		"":                                                       "",
		"a-@1234567":                                             "a-@1234567",
	} {
		if got := TrimRequestSuffix([]byte(id)); string(got) != base {
			t.Errorf("%q without its end is %q, want %q", id, got, base)
		}
	}
}
