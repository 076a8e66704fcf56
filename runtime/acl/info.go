package acl

import "fmt"

// Info describes a loaded library, for logs and reports. No decision depends on a version: the symbols show what the
// library can do.
type Info struct {
	Library string     // the file that was loaded
	ACL     ACLVersion // of AscendCL's interface; zero if the library does not say
	CANN    string     // of the runtime package; "" if neither library nor toolkit says
	SoC     string     // the chip, such as Ascend910B3; "" if the library does not say. Of device 0
	Missing []string   // optional symbols that the library lacks

	// Signals lists the signals for which loading the library has installed a handler that does not run on the alternate
	// stack. A Go program aborts when this kind of handler runs on a Go thread, so the caller should log the list.
	Signals []int
}

// An ACLVersion is the version of AscendCL's interface: 1.16.0 came with CANN 8.5.0, 1.17.0 with 9.
type ACLVersion struct{ Major, Minor, Patch int32 }

func (v ACLVersion) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }
