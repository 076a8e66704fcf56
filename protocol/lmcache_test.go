package protocol

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The real classes of LMCache are the oracle of every message that is not ours alone: tools/lmcache runs them out of
// the wheel. What they once wrote is kept in testdata/lmcache.txt; `make lmcache-oracle` asks them anew.

// sameAsLMCache says whether we read what a class wrote, and write the same.
func sameAsLMCache(dialect, class string, payload []byte) error {
	tag, err := PeekTag(payload, nil)
	if err != nil || tag.String() != class {
		return fmt.Errorf("%s of %s is %v, %w", class, dialect, tag, err)
	}
	m := NewMessage(tag)
	if err := m.Decode(payload, nil); err != nil {
		return fmt.Errorf("%s of %s: %x: %w", class, dialect, payload, err)
	}
	if again := m.Append(nil); !bytes.Equal(again, payload) && !tag.isWorkerControl() { // Of those we write only what we read.
		return fmt.Errorf("%s of %s\nwrites %x\nand we %x", class, dialect, payload, again)
	}
	if c, ok := m.(*WorkerControlMsg); ok && !bytes.Contains(payload, appendStr(str("worker_event_id"), c.EventID)) {
		return fmt.Errorf("%s of %s: %x: event %q", class, dialect, payload, c.EventID)
	}
	return nil
}

// sameAsJSON says whether a message means the same as the JSON that LMCache's controller reads.
func sameAsJSON(payload, asJSON []byte) error {
	tag, err := PeekControllerTag(asJSON, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", asJSON, err)
	}
	m, same := NewMessage(tag), NewMessage(tag)
	if err := m.Decode(asJSON, nil); err != nil {
		return fmt.Errorf("%s: %w", asJSON, err)
	}
	if err := same.Decode(payload, nil); err != nil || text(m) != text(same) {
		return fmt.Errorf("%s\nis   %s\nwant %s, %w", asJSON, text(m), text(same), err)
	}
	return nil
}

func TestWhatLMCacheWrote(t *testing.T) {
	file, err := os.ReadFile("testdata/lmcache.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(file)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.SplitN(strings.TrimSpace(line), " ", 4)
		payload, err := hex.DecodeString(words[2])
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if err := sameAsLMCache(words[0], words[1], payload); err != nil {
			t.Error(err)
		}
		if len(words) == 4 {
			if err := sameAsJSON(payload, []byte(words[3])); err != nil {
				t.Error(err)
			}
		}
		seen[words[1]] = true
	}
	for tag := TagNone + 1; tag < tags; tag++ {
		ours := strings.HasPrefix(tag.String(), "Kvf") // No class of LMCache's.
		if !seen[tag.String()] && !ours {
			t.Errorf("LMCache wrote no %v", tag)
		}
	}
}

// An oracle is the code of others in a process of its own, which answers lines.
type oracle struct {
	in  io.Writer
	out *bufio.Reader
}

func startLMCache(t *testing.T) *oracle { return startOracle(t, "KVFERRY_LMCACHE", "lmcache", "serve") }

// startOracle starts the one of a folder of tools, under the python that a variable names.
func startOracle(t *testing.T, variable, folder string, args ...string) *oracle {
	t.Helper()
	python := os.Getenv(variable)
	if python == "" {
		t.Skipf("%s names no python that has what it needs; make %s-oracle installs one", variable, folder)
	}
	cmd := exec.Command(python, append([]string{"oracle.py"}, args...)...) // It ends with its input.
	cmd.Dir, cmd.Stderr, cmd.Env = "../tools/"+folder, os.Stderr, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the oracle ended: %v", err)
		}
	})
	return &oracle{in, bufio.NewReaderSize(out, 1<<20)}
}

// ask sends a request and returns its answer.
func (l *oracle) ask(t require, request string) string {
	if _, err := io.WriteString(l.in, request+"\n"); err != nil {
		t.Fatalf("%v", err)
	}
	line, err := l.out.ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v", request, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// dialectOf says which class of LMCache's reads a message; none reads what is ours alone.
func dialectOf(m Message) string {
	switch tag := tagOf(m); tag {
	case TagRenewRequest, TagRenewResponse, TagEndRequest, TagEndResponse:
		return ""
	case TagAllocRequest:
		if m.(*AllocRequest).WithAsync {
			return "pd-async"
		}
		return "pd-sync"
	case TagAllocResponse:
		if m.(*AllocResponse).Form == FormAsync2 {
			return "pd-async"
		}
		return "pd-sync"
	case TagProxyNotif, TagCacheQueryRequest, TagCacheQueryResponse:
		return "pd-sync"
	case TagP2PInitSideMsg, TagP2PInitSideRetMsg:
		return "side"
	case TagBatchedLookupAndGetMsg, TagBatchedLookupAndGetRetMsg, TagBatchedLookupAndPutMsg, TagP2PErrorMsg:
		return "p2p"
	default:
		switch {
		case tag.Family() == FamilyAgent:
			return ""
		case tag.isWorkerControl():
			return "" // We write less than is required.
		case tag.Family() == FamilyController:
			return "controller"
		case tag.Family() == FamilyP2P:
			return "p2p-ascend"
		case strings.HasPrefix(tag.String(), "Hixl"):
			return "hixl"
		}
		return "pd-ascend"
	}
}

// plain is a message without what is ours.
func plain(t *testing.T, payload []byte) []byte {
	t.Helper()
	es := entries(t, payload)
	return join(slices.DeleteFunc(es, func(e entry) bool { return strings.HasPrefix(e.name, "kvf_") }), false)
}

// instances is how many messages go each way.
func instances(t *testing.T) int {
	t.Helper()
	text := os.Getenv("KVFERRY_LMCACHE_INSTANCES")
	if text == "" {
		return 10_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("KVFERRY_LMCACHE_INSTANCES: %v", err)
	}
	return n
}

// What we write, LMCache reads, skips what is ours, and writes the rest byte for byte.
func TestLMCacheReadsWhatWeWrite(t *testing.T) {
	classes := startLMCache(t)
	asked := map[string]int{}
	for n, seed := 0, 0; n < instances(t); seed++ {
		m := genMessage.Example(seed)
		dialect := dialectOf(m)
		if dialect == "" {
			continue
		}
		n++
		asked[dialect+"/"+tagOf(m).String()]++
		payload := m.Append(nil)
		got := classes.ask(t, "take "+dialect+" "+hex.EncodeToString(payload))
		if want := hex.EncodeToString(plain(t, payload)); got != want {
			t.Fatalf("%s\nwe write %x\nthey     %s\nwant     %s", text(m), payload, got, want)
		}
	}
	t.Logf("%v", asked)
}

// What we take, damaged as it is, LMCache takes as well. Of what is skipped within a message it is the stricter reader.
func TestLMCacheTakesWhatWeTake(t *testing.T) {
	classes := startLMCache(t)
	damage := rapid.Custom(func(t *rapid.T) []byte {
		payload := genMessage.Draw(t, "message").Append(nil)
		for range rapid.IntRange(1, 3).Draw(t, "mutations") {
			payload[rapid.IntRange(0, len(payload)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		return payload
	})
	taken, tried := 0, 0
	for ; taken < instances(t)/10; tried++ {
		payload := damage.Example(tried)
		tag, err := PeekTag(payload, nil)
		if err != nil || tag == TagRegisterRetMsg || tag == TagHeartbeatRetMsg {
			continue
		}
		m := NewMessage(tag)
		if m.Decode(payload, nil) != nil {
			continue
		}
		dialect := dialectOf(m)
		if dialect == "" {
			continue
		}
		if got := classes.ask(t, "take "+dialect+" "+hex.EncodeToString(payload)); strings.HasPrefix(got, "error") {
			t.Errorf("%s\nwe take %x\nthey say %s", text(m), payload, got)
		}
		taken++
	}
	t.Logf("%d of %d were taken", taken, tried)
}

// What LMCache writes, we read, and write byte for byte; and what its controller reads from JSON, we read as the same.
func TestWeReadWhatLMCacheWrites(t *testing.T) {
	classes := startLMCache(t)
	names := strings.Fields(classes.ask(t, "classes"))
	for n := range instances(t) {
		dialect, class, _ := strings.Cut(names[n%len(names)], "/")
		verb := "draw"
		if dialect == "controller" {
			verb = "json"
		}
		answer := classes.ask(t, fmt.Sprintf("%s %s %s %d", verb, dialect, class, n))
		digits, asJSON, _ := strings.Cut(answer, " ")
		payload, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatalf("%s: %v", answer, err)
		}
		if err := sameAsLMCache(dialect, class, payload); err != nil {
			t.Fatal(err)
		}
		if asJSON != "" {
			if err := sameAsJSON(payload, []byte(asJSON)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
