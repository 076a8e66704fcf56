package effects

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWhyReadsInOneLine(t *testing.T) {
	peer := Addr{Host: "10.0.0.7", Port: 7300}
	for _, c := range []struct {
		code Code
		why  Why
		want string
	}{
		{Mismatch,
			Why{Addr: peer, Stage: StageHello, Field: "page_bytes", Ours: "4096", Theirs: "8192", Said: "no", Remedy: "agree"},
			`10.0.0.7:7300, hello: page_bytes is 4096 here, 8192 there; it says "no"; agree`},
		{Expired, Why{Addr: Addr{Host: "fe::1", Port: 1}, Stage: StageAsk}, "[fe::1]:1, allocation; " + RemedyOf(Expired)},
		{Refused, Why{Name: "prefill-3", Theirs: "9"}, "prefill-3, 9 there; " + RemedyOf(Refused)},
		{Refused, Why{Peer: Incarnation{1, 2, 3, 4, 5}}, "01020304; " + RemedyOf(Refused)},
		{TooLarge, Why{Stage: StageCommand, Field: "Request", Theirs: "200 bytes", Ours: "at most 128"},
			"Request is 200 bytes, want at most 128; " + RemedyOf(TooLarge)},
		{Invalid, Why{Stage: StageCommand, Field: "Peer.Host", Theirs: `""`}, `Peer.Host is ""; ` + RemedyOf(Invalid)},
		{NoMemory, Why{Stage: StageMemory, Field: "pages", Ours: "7"}, "memory: pages is 7; " + RemedyOf(NoMemory)},
		{Cancelled, Why{}, ""},
	} {
		got := c.why.Text(c.code)
		if got != c.want {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
		if strings.ContainsAny(got, "\n\r") {
			t.Errorf("%q is more than a line", got)
		}
	}
}

// Each code but those that ask for nothing says what helps.
func TestEveryCodeHasARemedy(t *testing.T) {
	for c := range Code(CodeCount) {
		if nothing := c == OK || c == Cancelled || c == Closed; (RemedyOf(c) == "") != nothing {
			t.Errorf("%v: %q", c, RemedyOf(c))
		}
	}
	if RemedyOf(CodeCount) != "" {
		t.Error("a code that there is not has a remedy")
	}
}

// Whatever a peer says, what is shown of it is one short printable line.
func TestWordsAreOnlyWords(t *testing.T) {
	for said, want := range map[string]string{
		"page_bytes: 4096 here":    "page_bytes: 4096 here",
		"größe":                    "größe",
		"a\nb\x1b[31mc\x00d\te":    "a?b?[31mc?d?e",
		"\xff\xfe":                 "??",
		"abc\u202etxt\u200b\ufeff": "abc?txt??",
		"":                         "",
	} {
		if got := SanitizeText([]byte(said)); got != want {
			t.Errorf("%q became %q, want %q", said, got, want)
		}
	}
	for _, of := range []string{"x", "ü", "日", "\xff"} {
		got := SanitizeText([]byte("x" + strings.Repeat(of, 5000)))
		if len(got) > PeerTextMax || len(got) < PeerTextMax-utf8.UTFMax || !utf8.ValidString(got) {
			t.Errorf("many of %q became %d bytes, want at most %d of whole runes", of, len(got), PeerTextMax)
		}
	}
}
