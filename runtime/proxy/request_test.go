package proxy

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
)

// The requests that have a single cache which can be sent.
func TestUncachedField(t *testing.T) {
	for body, why := range map[string]string{
		`{"prompt": "x"}`:                          "",
		`{"prompt": [ 1, 2]}`:                      "",
		`{"prompt": "x", "n": 1, "best_of": null}`: "",
		`{"prompt": "x", "echo": false}`:           "",
		`{"prompt": ["x"]}`:                        "prompt",
		`{"prompt": [[1], [2]]}`:                   "prompt",
		`{"prompt": []}`:                           "prompt",
		`{"prompt": {}}`:                           "prompt",
		`{}`:                                       "prompt",
		`{"prompt": "x", "n": 2}`:                  "n",
		`{"prompt": "x", "n": "1"}`:                "n",
		`{"prompt": "x", "best_of": 3}`:            "best_of",
		`{"prompt": "x", "use_beam_search": true}`: "use_beam_search",
		`{"prompt": "x", "echo": true}`:            "echo",
		`{"prompt": "x", "prompt_logprobs": 0}`:    "prompt_logprobs",
		`{"prompt": "x", "prompt_embeds": "AA"}`:   "prompt_embeds",
	} {
		r, err := parseRequest([]byte(body), completions)
		if got := r.uncachedField(); got != why || err != nil {
			t.Errorf("%s: %q, %v, want %q", body, got, err, why)
		}
	}
	for body, why := range map[string]string{
		`{"messages": [{"role": "user", "content": "x"}]}`:                                         "",
		`{"messages": [{"content": "prompt_embeds"}, {"type": "text", "content": ["x", 1]}]}`:      "",
		`{"messages": [{"content": [{"type": "text", "text": "\"type\": \"prompt_embeds\""}]}]}`:   "",
		`{"messages": "x", "truncate_prompt_tokens": 9, "truncation": "disabled"}`:                 "",
		`{"messages": [], "truncate_prompt_tokens": -1}`:                                           "truncate_prompt_tokens",
		`{"messages": [{"content": [{"type": "text"}, {"type": "prompt_embeds", "data": "AA"}]}]}`: "prompt_embeds",
		`{"messages": [{}, {"content" : [{"data": "AA", "type" : "prompt_embeds"}]}]}`:             "prompt_embeds",
		`{"messages": [{"content": [{"t\u0079pe": "prompt\u005fembeds"}]}]}`:                       "prompt_embeds",
		`{"messages": [{"content": [{"prompt_embeds": "AA"}]}]}`:                                   "prompt_embeds",
		`{"messages": [{"content": [{"content": [{"type": "prompt_embeds"}]}]}]}`:                  "prompt_embeds",
		`{"messages": [{"content": [{"content": [{"content": [{"content": []}]}]}]}]}`:             "prompt_embeds",
		`{"messages": 1, "messages": [{"content": [{"type": "prompt_embeds"}]}]}`:                  "prompt_embeds",
	} {
		r, err := parseRequest([]byte(body), chat)
		if got := r.uncachedField(); got != why || err != nil {
			t.Errorf("%s: %q, %v, want %q", body, got, err, why)
		}
	}
	for body, why := range map[string]string{
		`{"input": "x", "tools": [{"type": "function", "name": "f"}], "truncation": "disabled"}`: "",
		`{"input": "x", "tools": []}`: "",
		`{"input": "x", "tools": [{"type": "function"}, {"type": "code_interpreter"}]}`: "tools",
		`{"input": "x", "tools": [{}]}`:                                                      "tools",
		`{"input": "x", "truncation": "auto"}`:                                               "truncation",
		`{"input": [{"role": "user", "content": [{"type": "prompt_embeds", "data": "A"}]}]}`: "prompt_embeds",
	} {
		r, err := parseRequest([]byte(body), responses)
		if got := r.uncachedField(); got != why || err != nil {
			t.Errorf("%s: %q, %v, want %q", body, got, err, why)
		}
	}
}

// Messages of any nesting are inspected in time proportional to their length.
func TestDeepMessages(t *testing.T) {
	const deep = 3000
	body := `{"messages": ` + strings.Repeat(`[{"content": `, deep) + `"` + strings.Repeat("x", 4<<20) + `"` +
		strings.Repeat(`}]`, deep) + `}`
	r, err := parseRequest([]byte(body), chat)
	if got := r.uncachedField(); got != "prompt_embeds" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func readText(p bodyParts) string {
	text, _ := io.ReadAll(p.newReader())
	if int64(len(text)) != p.totalBytes() {
		return "of another length"
	}
	return string(text)
}

// Fields reach the engine unchanged, whatever their values, including unknown ones.
func TestFields(t *testing.T) {
	for body, want := range map[string]string{
		"{}":                               `{}`,
		" \t\r\n{ \n}\n ":                  `{}`,
		`{"b" : 1.5e+3 , "a" :null}`:       `{"a":null,"b":1.5e+3}`,
		`{"a": true,"b":-1}`:               `{"a":true,"b":-1}`,
		`{"a":"}\"],{\\","b":"\\\\"}`:      `{"a":"}\"],{\\","b":"\\\\"}`,
		`{"a":[{"x":"]"},[[]],{}],"b":{}}`: `{"a":[{"x":"]"},[[]],{}],"b":{}}`,
		`{"a":1,"\u0061":2}`:               `{"a":2}`,
		`{"a\"b":[1 , 2]}`:                 `{"a\"b":[1 , 2]}`,
		`{"a":{"b":{"c":[]}}}`:             `{"a":{"b":{"c":[]}}}`,
	} {
		r, err := parseRequest([]byte(body), completions)
		if got := readText(r.decodeBody(nil)); err != nil || got != want {
			t.Errorf("%s becomes %s, %v", body, got, err)
		}
	}
}

// Fields of a client about caches never reach an engine.
func TestCacheFieldsAreDropped(t *testing.T) {
	for _, body := range []string{
		`{"prompt": "x", "kv_transfer_params": {"disagg_spec": {"receiver_host": "10.9.9.9"}}}`,
		`{"prompt": "x", "kv_\u0074ransfer_params": 1}`,
		`{"prompt": "x", "kv_transfer_params": 1, "kv_transfer_params": 2}`,
		`{"prompt": "x", "ec_transfer_params": {"a": 1}, "vllm_xargs": {"ec_transfer_params": 1}}`,
		`{"prompt": "x", "vllm_xargs": {"kv_transfer_params": "10.9.9.9"}}`,
		`{"prompt": "x", "vllm_xargs": {"kv\u005ftransfer_params": "10.9.9.9", "a": 1}}`,
		`{"prompt": "x", "vllm_xargs": {"kv_transfer_params": 1}, "vllm_xargs": {"kv_transfer_params": 2}}`,
	} {
		r, err := parseRequest([]byte(body), completions)
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		out := readText(r.decodeBody(nil))
		if strings.Contains(out, "transfer_params") || !strings.Contains(out, `"prompt":"x"`) {
			t.Errorf("%s becomes %s", body, out)
		}
	}
}

func TestMalformedBodies(t *testing.T) {
	many := `{"a": 1`
	for i := range fieldsMax {
		many += `, "f` + strings.Repeat("x", i) + `": 1`
	}
	for _, body := range []string{"", "[]", "1", `"x"`, "null", "{", `{"a"}`, `{"a": }`, `{} {}`, `{"a": 1} x`, many + "}",
		`{"vllm_xargs": [1]}`, `{"vllm_xargs": {"a": "` + strings.Repeat("x", argumentBytesMax) + `"}}`} {
		if r, err := parseRequest([]byte(body), completions); err == nil {
			t.Errorf("%.40q is taken for %v", body, r.fields)
		}
	}
}

// Any body yields an error, or a request with two bodies that are JSON objects, the second without fields about caches.
func FuzzBody(f *testing.F) {
	for _, body := range []string{completion, `{"prompt": [1]}`, `{"vllm_xargs": {"kv_transfer_params": 1}}`, "{"} {
		f.Add([]byte(body))
	}
	d := DecodeEngine{Host: "h", InitPorts: []uint16{1}, AllocPorts: []uint16{2}}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := parseRequest(body, chat)
		if err != nil {
			return
		}
		var as map[string]json.RawMessage
		if json.Unmarshal(body, &as) != nil {
			t.Errorf("%q is taken", body)
		}
		for name, value := range as {
			if name != paramsField && name != "vllm_xargs" && string(r.fields[name]) != string(value) {
				t.Errorf("%q: %q is %q, want %q", body, name, r.fields[name], value)
			}
		}
		for _, r.endpoint = range endpoints {
			r.uncachedField()
			_ = r.checkSupported()
		}
		r.endpoint = chat
		first, err := r.prefillBody("r", d)
		var out map[string]json.RawMessage
		if err != nil || json.Unmarshal([]byte(readText(first)), &out) != nil || string(out["max_tokens"]) != "1" {
			t.Errorf("%q becomes %q, %v", body, first, err)
		}
		second := readText(r.decodeBody(nil))
		out = nil
		if json.Unmarshal([]byte(second), &out) != nil || out[paramsField] != nil {
			t.Errorf("%q becomes %q", body, second)
		}
	})
}

func TestTurns(t *testing.T) {
	now := time.Now()
	turns := newRoundRobin(3, time.Second, 0)
	take := func(at time.Duration, anyway bool, tried ...int) int {
		t.Helper()
		set := map[int]bool{}
		for _, i := range tried {
			set[i] = true
		}
		return turns.nextEngine(now.Add(at), anyway, set)
	}
	for _, want := range []int{0, 1, 2, 0} {
		if got := take(0, false); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
	turns.onFailure(1, now, now, 0)
	if got := take(0, false); got != 2 {
		t.Errorf("got %d, want the one after that which rests", got)
	}
	turns.onFailure(0, now, now.Add(time.Millisecond), 0)
	turns.onFailure(2, now, now.Add(time.Millisecond), 0)
	if got := take(0, false); got != -1 {
		t.Errorf("got %d of engines that rest", got)
	}
	if got := take(0, true); got != 1 {
		t.Errorf("got %d, want that which rests longest", got)
	}
	if got := take(0, true, 0, 1, 2); got != -1 {
		t.Errorf("got %d, which was tried", got)
	}
	if got := take(time.Second, false); got != 1 {
		t.Errorf("got %d, want that which has rested", got)
	}
	if got := newRoundRobin(0, time.Second, 0).nextEngine(now, true, nil); got != -1 {
		t.Errorf("got %d of none", got)
	}
}

// A user and a password before an engine's host are refused, and the error does not show them.
func TestPasswordsOfEnginesAreNotShown(t *testing.T) {
	for _, text := range []string{"http://user:hunter2@h:1", "http://user:hun=ter2@h:1", "user:hunter2@h"} {
		_, engineErr := ParseEngine(text)
		_, decodeErr := ParseDecode(text + "=h:1:2")
		for _, err := range []error{engineErr, decodeErr} {
			if err == nil || strings.Contains(err.Error(), "hun") || !strings.Contains(err.Error(), "@h") {
				t.Errorf("%v; want a refusal that names the host without the password", err)
			}
		}
	}
}

func TestParseDecode(t *testing.T) {
	d, err := ParseDecode("http://10.0.0.2:8000/=10.0.0.3:7300,7301:7400,7401")
	if err != nil || d.URL.String() != "http://10.0.0.2:8000" || d.Host != "10.0.0.3" || len(d.InitPorts) != 2 ||
		d.AllocPorts[1] != 7401 {
		t.Errorf("got %+v, %v", d, err)
	}
	if d, err := ParseDecode("https://[::1]:8000=[fd00::2]:7300:7400"); err != nil || d.Host != "fd00::2" {
		t.Errorf("got %+v, %v", d, err)
	}
	for _, text := range []string{"", "http://a:1", "a:1=b:1:2", "http://a:1=b", "http://a:1=b:1", "http://a:1=:1:2",
		"http://a:1=b:0:2", "http://a:1=b:1:65536", "http://a:1=b:1,2:3", "http://a:1=b:1:", "ftp://a=b:1:2",
		"http://u:p@a=b:1:2", "http://a?x=b:1:2"} {
		if d, err := ParseDecode(text); err == nil {
			t.Errorf("%q is taken for %+v", text, d)
		}
	}
}

func TestInvalidConfigs(t *testing.T) {
	good := Defaults()
	d, err := ParseDecode("http://a:1=b:1:2")
	if err != nil {
		t.Fatal(err)
	}
	good.Decodes = []DecodeEngine{d}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Config){
		"no decode":   func(c *Config) { c.Decodes = nil },
		"no agents":   func(c *Config) { c.Decodes = []DecodeEngine{{URL: d.URL}} },
		"requests":    func(c *Config) { c.MaxRequests = -1 },
		"timeout":     func(c *Config) { c.Timeout = -1 },
		"rest":        func(c *Config) { c.RestTime = -1 },
		"total bytes": func(c *Config) { c.MaxTotalBytes = c.MaxBodyBytes - 1 },
	} {
		c := good
		change(&c)
		if c.Check() == nil {
			t.Errorf("%s: nothing is wrong", name)
		}
	}
	good.Address = "nowhere"
	if p, err := Listen(good); err == nil {
		t.Errorf("it listens at %v", p.Addr())
	}
}
