package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/plain"
)

// The exit codes of every command.
const (
	exitOK      = 0
	exitFinding = 1
	exitUsage   = 2
)

// servesAnnotation marks a command that runs until a signal ends it. For such a command, the signal means success.
const serves = "serves"

// markServing adds servesAnnotation to a command.
func serving(cmd *cobra.Command) *cobra.Command {
	cmd.Annotations = map[string]string{serves: "until a signal"}
	return cmd
}

// An interruption is the signal that ended a command.
type interruption struct{ signal syscall.Signal }

func (i interruption) Error() string { return "interrupted by " + i.name() }

func (i interruption) name() string {
	if i.signal == syscall.SIGINT {
		return "SIGINT"
	}
	if i.signal == syscall.SIGTERM {
		return "SIGTERM"
	}
	return i.signal.String()
}

// exitCode returns the exit code that a shell reports for a process that the signal killed.
func (i interruption) exitCode() int { return 128 + int(i.signal) }

// interruptedBy returns the signal that ended ctx, and reports whether ctx has ended. A context that ended without a
// signal, as in tests, counts as interrupted from the keyboard.
func interruptedBy(ctx context.Context) (interruption, bool) {
	if ctx.Err() == nil {
		return interruption{}, false
	}
	i := interruption{syscall.SIGINT}
	errors.As(context.Cause(ctx), &i)
	return i, true
}

// errFinding ends a command that has already printed its findings.
var errFinding = errors.New("found something wrong")

// A usageError is the error of a wrong command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run runs one command line and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	var usage usageError
	stopped, interrupted := interruptedBy(ctx)
	switch {
	case interrupted && cmd.Annotations[serves] == "" && (err == nil || errors.Is(err, context.Canceled)):
		fmt.Fprintf(stderr, "%s: %v\n", cmd.CommandPath(), stopped)
		return stopped.exitCode()
	case err == nil:
		return exitOK
	case errors.Is(err, errFinding):
		return exitFinding
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "%s: %s\nsee %s --help\n", cmd.CommandPath(), plain.Text(err.Error()), cmd.CommandPath())
		return exitUsage
	default:
		fmt.Fprintf(stderr, "%s: %s\n", cmd.CommandPath(), plain.Text(err.Error()))
		return exitFinding
	}
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "kvferry",
		Short: "Carry KV cache between the nodes of a disaggregated LLM serving system",
		Long: `kvferry carries KV cache between the nodes of a disaggregated LLM serving system.

It reads LMCache's configuration and speaks its control messages; KV goes between kvferry's
own nodes alone. What decides is a pure state machine, so the same code runs against real
sockets and memory and against a simulator that injects every fault it knows.

Exit codes: 0 all is well, 1 something wrong was found, 2 wrong usage, 130 and 143 interrupted
by SIGINT and SIGTERM before the work was done.`,
		Example: `  kvferry config check receiver.yaml sender.yaml
  kvferry layout --model Qwen3-8B/config.json --tp 2
  kvferry --version
  kvferry decode 82a474797065aa50726f78794e6f746966a67265715f6964a23137`,
		Version:       currentBuild().text(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("{{.Version}}")
	root.AddCommand(
		newLayoutCommand(),
		newConfigCommand(),
		newDecodeCommand(),
		newDemoCommand(),
		serving(newDemoProxyCommand()),
		serving(newDirectoryCommand()),
		newDoctorCommand(),
		serving(newNodeCommand()),
		serving(newAgentCommand()),
		serving(newProxyCommand()),
		newSimCommand(),
		newVersionCommand(),
	)
	strict(root)
	return root
}

// reportUsageErrors makes cmd and all subcommands of cmd report wrong calls as usage errors: wrong flags, wrong
// arguments, and groups that are called without a subcommand.
func strict(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	if !cmd.Runnable() {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = runGroup
	} else {
		valid := cmd.Args
		if valid == nil {
			valid = noArguments
		}
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := valid(cmd, args); err != nil {
				return usageError{err}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		strict(sub)
	}
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q; it takes none", args[0])
	}
	return nil
}

// runGroup runs when a group of commands is called without a subcommand.
func runGroup(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		if err := cmd.Help(); err != nil {
			return err
		}
		return usagef("name a command")
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("unknown command %q, did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return usagef("unknown command %q; %s --help lists them", args[0], cmd.CommandPath())
}

// addJSONFlag adds the flag --json to cmd. With the flag, cmd prints one indented JSON value on standard output.
func addJSONFlag(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON instead of text")
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
