package plain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// raw matches words in a message that only a Go programmer understands.
var raw = regexp.MustCompile(`strconv\.|json: |time: |Go (struct|value)|in type |!!|plan\.|uint|int64|\[\]string`)

// The messages of Go's parsers about wrong texts become sentences.
func TestText(t *testing.T) {
	type inner struct {
		Wait int64 `json:"wait_ms" yaml:"wait_ms"`
	}
	type outer struct {
		Name  string        `json:"name" yaml:"name"`
		On    bool          `json:"on" yaml:"on"`
		List  []string      `json:"list" yaml:"list"`
		In    inner         `json:"in" yaml:"in"`
		Count uint16        `json:"count" yaml:"count"`
		For   time.Duration `json:"for" yaml:"for"`
	}
	_, number := strconv.ParseUint("x", 10, 64)
	_, range_ := strconv.ParseInt("99999999999999999999", 10, 64)
	_, float := strconv.ParseFloat("1,5", 64)
	_, word := strconv.ParseBool("maybe")
	_, unit := time.ParseDuration("3")
	_, odd := time.ParseDuration("3 parsecs")
	_, atoi := strconv.Atoi("a\"b")
	wrong := map[string]error{
		`"x" is no whole number`: number, `"99999999999999999999" is out of range`: range_, `"1,5" is no number`: float,
		`"maybe" is neither true nor false`: word, `"3" is no duration: write one such as 250ms, 10s or 2m`: unit,
		`"3 parsecs" is no duration: write one such as 250ms, 10s or 2m`: odd, `"a\"b" is no whole number`: atoi,
	}
	for text, want := range map[string]string{
		`{"in": {"wait_ms": "a"}}`: "field in.wait_ms is a text, want a whole number",
		`{"name": 3}`:              "field name is a number, want a text",
		`{"list": {}}`:             "field list is a mapping, want a list",
		`[]`:                       "got a list, want another kind of value",
		`{"nme": "a"}`:             `there is no field "nme"`,
	} {
		d := json.NewDecoder(bytes.NewReader([]byte(text)))
		d.DisallowUnknownFields()
		wrong[want] = d.Decode(&outer{})
	}
	for want, err := range wrong {
		if err == nil {
			t.Fatalf("%s: no error", want)
		}
		if got := Text("before: " + err.Error()); got != "before: "+want {
			t.Errorf("of %q got %q, want %q", err, got, "before: "+want)
		}
	}
	for _, text := range []string{"nme: a", "count: x", "on: 3", "list: a", "in: 3", "count: -1", "for: 3x", "name: [a]"} {
		err := yaml.Load([]byte(text), &outer{}, yaml.WithKnownFields())
		if err == nil {
			t.Fatalf("%s: no error", text)
		}
		if got := Text(err.Error()); raw.MatchString(got) {
			t.Errorf("of %s got %q", text, got)
		}
	}
	if got := Text(fmt.Sprint(errors.New("nothing of Go's"))); got != "nothing of Go's" {
		t.Errorf("got %q", got)
	}
}
