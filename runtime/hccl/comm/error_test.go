package comm

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/runtime/acl"
)

func TestErrorText(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{
			&Error{Code: 21, Call: "HcclBatchPut", Args: "comm=x count=4", Message: "completion with error"},
			"HcclBatchPut(comm=x count=4): HCCL_E_REMOTE (21, link failure): completion with error",
		},
		{&Error{Code: 77, Call: "HcclCommDestroy"}, "HcclCommDestroy(): HcclResult 77 (77, link failure)"},
		{
			&Error{Code: 6, Call: "HcclCommPrepare"},
			"HcclCommPrepare(): HCCL_E_NOT_FOUND (6, link failure); check that the peer's NPU has a RoCE address (hccn_tool -i " +
				"<id> -ip -g)",
		},
		{
			&MissingError{Symbol: "HcclGetCommAsyncError", Library: "libhcomm.so"},
			"hccl: libhcomm.so lacks the function HcclGetCommAsyncError: install another version of CANN",
		},
		{
			&LoadError{Attempts: []Attempt{{Library: "a.so", Reason: "no such file"},
				{Library: "b.so", Missing: []string{"HcclBatchPut"}}}},
			"hccl: no library has the one-sided functions; tried a.so: no such file; tried b.so: it has no HcclBatchPut; " +
				"install CANN and source its set_env.sh, or name the library in KVFERRY_HCCL",
		},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestErrorIsItsClassOnly(t *testing.T) {
	classes := []acl.Class{
		acl.Bug, acl.Config, acl.OutOfMemory, acl.Exhausted, acl.Timeout, acl.Cancelled, acl.Link, acl.Device,
		acl.DeviceLost, acl.EngineFailure, acl.Unsupported,
	}
	for code, class := range map[Code]acl.Class{
		1: acl.Bug, 2: acl.Bug, 3: acl.OutOfMemory, 4: acl.Link, 5: acl.Unsupported, 6: acl.Link, 7: acl.Exhausted,
		8: acl.Device,
		9: acl.Link, 10: acl.Config, 11: acl.Link, 12: acl.Link, 13: acl.Link, 14: acl.Link, 15: acl.Device, 16: acl.Device,
		17: acl.Bug, 18: acl.Bug, 19: acl.Link, 20: acl.Link, 21: acl.Link, 22: acl.Link, 23: acl.Link, 24: acl.OutOfMemory,
		1041: acl.Link,
		// No header has this code.
		4711: acl.Link,
	} {
		err := fmt.Errorf("link to 7: %w", &Error{Code: code})
		for _, other := range classes {
			if is := errors.Is(err, other); is != (other == class) {
				t.Errorf("code %d, of class %v: errors.Is(err, %v) = %v", code, class, other, is)
			}
		}
		if retry := code == 9 || code == 11 || code == 12 || code == 20; code.CanRetry() != retry {
			t.Errorf("code %d: retry %v, want %v", code, code.CanRetry(), retry)
		}
	}
	if len(codes) != 25 {
		t.Errorf("%d codes, and the test knows 25", len(codes))
	}
	if !errors.Is(&MissingError{}, acl.Unsupported) || !errors.Is(&LoadError{}, acl.Config) {
		t.Error("a missing function is Unsupported, a missing library Config")
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		success.String(): "HCCL_SUCCESS", Code(9).String(): "HCCL_E_TIMEOUT", Code(99).String(): "HcclResult 99",
		RoCE.String(): "RoCE", HCCS.String(): "HCCS", Link(9).String(): "link 9",
		Global.String(): "global memory", Exchange.String(): "exchange of descriptors", Sequence(9).String(): "sequence 9",
		Setting{15, FromOptions}.String(): "15 (kvferry)", Setting{17, FromUser}.String(): "17 (environment)",
		Origin(9).String(): "origin 9",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
