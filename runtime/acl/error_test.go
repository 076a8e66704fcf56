package acl

import (
	"errors"
	"fmt"
	"testing"
)

func TestErrorText(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{
			&Error{Code: 207001, Call: "aclrtMalloc", Args: "size=64 policy=0", Message: "alloc failed"},
			"aclrtMalloc(size=64 policy=0): ACL_ERROR_RT_MEMORY_ALLOCATION (207001, out of memory): alloc failed",
		},
		{
			&Error{Code: 507123, Call: "aclrtStreamQuery"},
			"aclrtStreamQuery(): aclError 507123 (507123, device failure)",
		},
		{
			&Error{Code: 107001, Call: "aclrtSetDevice", Args: "device=9"},
			"aclrtSetDevice(device=9): ACL_ERROR_RT_INVALID_DEVICEID (107001, configuration); see npu-smi info for the " +
				"devices " +
				"of this machine, and ASCEND_RT_VISIBLE_DEVICES for the visible ones",
		},
		{
			&MissingError{Symbol: "aclrtStreamAbort", Library: "libascendcl.so"},
			"acl: libascendcl.so lacks the function aclrtStreamAbort: install a newer CANN",
		},
		{
			&LoadError{Attempts: []Attempt{{Library: "a.so", Reason: "no such file"},
				{Library: "b.so", Missing: []string{"aclInit", "aclrtFree"}}}},
			"acl: no usable AscendCL library; tried a.so: no such file; tried b.so: it has no aclInit, aclrtFree; install " +
				"CANN " +
				"and source its set_env.sh, or name the library in KVFERRY_ASCENDCL",
		},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// errors.Is finds the class of an error for each code, however deep the error is wrapped.
func TestErrorIsItsClassOnly(t *testing.T) {
	for code, class := range map[Code]Class{
		207001: OutOfMemory, 207018: OutOfMemory, 200000: OutOfMemory, 300000: OutOfMemory,
		507046: Timeout, 507047: Timeout, 107019: Timeout, 107023: Cancelled,
		207000: Unsupported, 200001: Unsupported, 507002: Exhausted, 207007: Exhausted,
		107002: Bug, 507056: Link, 507010: DeviceLost, 507015: EngineFailure, 507000: Device, 107001: Config,
		// Codes that the table lacks are classified by group.
		100999: Bug, 207999: Exhausted, 300099: OutOfMemory, 507999: Device, 999999: Device, -7: Device,
	} {
		err := fmt.Errorf("pool of 4 pages: %w", &Error{Code: code, Call: "aclrtMalloc"})
		for other := range classNames {
			if is := errors.Is(err, other); is != (other == class) {
				t.Errorf("code %d, of class %v: errors.Is(err, %v) = %v", code, class, other, is)
			}
		}
	}
	if !errors.Is(&MissingError{}, Unsupported) || errors.Is(&MissingError{}, Config) {
		t.Error("a missing function is Unsupported and nothing else")
	}
}

func TestEveryCodeHasNameAndClass(t *testing.T) {
	for code, known := range codes {
		if known.name == "" || classNames[known.class] == "" {
			t.Errorf("code %d: name %q, class %v", code, known.name, known.class)
		}
		if got, want := code.String(), "ACL_ERROR_"+known.name; got != want {
			t.Errorf("code %d prints as %s, want %s", code, got, want)
		}
	}
	if success.String() != "ACL_SUCCESS" {
		t.Errorf("0 prints as %s", success)
	}
	for code := range remedies {
		if codes[code].class != Config {
			t.Errorf("code %d has a remedy for the operator, and is not Config", code)
		}
	}
}
