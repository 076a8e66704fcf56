package libnixl

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// For a file that is missing or is not a library, the error names the file, the reason and the remedy.
func TestOpenRefusesWhatIsNoLibrary(t *testing.T) {
	file := filepath.Join(t.TempDir(), "libtext.so")
	if err := os.WriteFile(file, []byte("a text, and no library"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Options{Library: file})
	missed := (*LoadError)(nil)
	if !errors.As(err, &missed) || len(missed.Attempts) != 1 || missed.Attempts[0].Library != file {
		t.Fatalf("got %T %v", err, err)
	}
	for _, want := range []string{file, LibraryVariable, "nixl-cu12"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		err  Error
		want string
	}{
		{Error{"nixl_capi_register_mem", "ranges=1", Backend},
			"nixl_capi_register_mem(ranges=1): backend (-2); the memory cannot be registered: with RDMA raise the limit of " +
				"locked memory (ulimit -l, LimitMEMLOCK)"},
		{Error{"nixl_capi_post_xfer_req", "", Backend},
			"nixl_capi_post_xfer_req(): backend (-2); see libnixl's log on standard error; set NIXL_LOG_LEVEL=DEBUG for details"},
		{Error{"nixl_capi_post_xfer_req", "", -77}, "nixl_capi_post_xfer_req(): unknown status (-77)"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
