package main

import (
	"strings"
	"testing"
)

// The tenant of a salt is the one in keys, whether the salt ends with a newline or not.
func TestTenantCommand(t *testing.T) {
	for _, input := range []string{"salt-of-a", "salt-of-a\n", "salt-of-a\r\n"} {
		var out, errs strings.Builder
		cmd := newTenantCommand()
		cmd.SetIn(strings.NewReader(input))
		cmd.SetOut(&out)
		cmd.SetErr(&errs)
		cmd.SetArgs([]string{})
		if err := cmd.Execute(); err != nil || out.String() != "76eff33a338b6205\n" {
			t.Errorf("%q: %q, %v", input, out.String(), err)
		}
	}
	for input, want := range map[string]string{"": "is empty", "\n": "is empty", strings.Repeat("x", maxSaltBytes+2): "more than"} {
		cmd := newTenantCommand()
		cmd.SetIn(strings.NewReader(input))
		cmd.SetOut(new(strings.Builder))
		cmd.SetErr(new(strings.Builder))
		cmd.SetArgs([]string{})
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a salt of %d bytes: %v", len(input), err)
		}
	}
}
