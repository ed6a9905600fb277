package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// envPrefix begins the environment's names of all flags.
const envPrefix = "RAFTMQ"

// envName is the environment's name of a flag.
func envName(flag string) string {
	return envPrefix + "_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// loadConfig completes c, whose flags cmd has parsed, from the environment and the file that
// --config names, fills in derived values and validates the whole.
func loadConfig(cmd *cobra.Command, c *Config, file string) error {
	if file == "" {
		file = os.Getenv(envName(configFlag))
	}
	if err := fillFlags(cmd.Flags(), file); err != nil {
		return err
	}
	if err := c.complete(cmd.Flags().Changed); err != nil {
		return err
	}
	return c.Validate()
}

// fillFlags gives each flag that is not on the command line its value from the environment or
// else from the YAML file (none if empty), through the flag's own parser: the three sources
// have one syntax and one error text. A key that is no flag is refused.
func fillFlags(fs *pflag.FlagSet, file string) error {
	v := viper.New()
	v.SetEnvPrefix(envPrefix)
	v.SetEnvKeyReplacer(strings.NewReplacer("-", "_"))
	v.AutomaticEnv()
	if file != "" {
		if err := readConfigFile(v, fs, file); err != nil {
			return err
		}
	}
	var errs []error
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Changed || notConfigurable(f.Name) {
			return
		}
		source := "environment variable " + envName(f.Name)
		if os.Getenv(envName(f.Name)) == "" {
			if !v.InConfig(f.Name) {
				return
			}
			source = "file " + file
		}
		if err := setFlag(fs, f, v.Get(f.Name)); err != nil {
			var plain flagError
			if errors.As(plainFlagError(err), &plain) {
				err = fmt.Errorf("%q: %s", plain.value, plain.allowed)
			}
			errs = append(errs, fmt.Errorf("--%s in %s: %w", f.Name, source, err))
		}
	})
	return errors.Join(errs...)
}

// configFlag is the one server flag that a file cannot hold.
const configFlag = "config"

func notConfigurable(flag string) bool { return flag == configFlag || flag == "help" }

func readConfigFile(v *viper.Viper, fs *pflag.FlagSet, file string) error {
	v.SetConfigFile(file)
	v.SetConfigType("yaml")
	if err := v.ReadInConfig(); err != nil {
		return fmt.Errorf("--%s %q: %w", configFlag, file, err)
	}
	var unknown []string
	// Only the file's own keys: AutomaticEnv adds nothing to AllKeys without BindEnv.
	for _, key := range v.AllKeys() {
		if fs.Lookup(key) == nil || notConfigurable(key) {
			unknown = append(unknown, fmt.Sprintf("%q%s", key, suggestion(fs, key)))
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return fmt.Errorf("--%s %q: unknown key %s; allowed are the names of the flags that \"raftmq server --help\" lists",
			configFlag, file, strings.Join(unknown, ", "))
	}
	return nil
}

// suggestion names the flag that a wrong key most likely meant, or nothing.
func suggestion(fs *pflag.FlagSet, key string) string {
	plain := func(s string) string {
		return strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(s))
	}
	var found string
	fs.VisitAll(func(f *pflag.Flag) {
		if plain(f.Name) == plain(key) && !notConfigurable(f.Name) {
			found = fmt.Sprintf(" (did you mean %q?)", f.Name)
		}
	})
	return found
}

func setFlag(fs *pflag.FlagSet, f *pflag.Flag, value any) error {
	switch x := value.(type) {
	case nil:
		return errors.New("has no value")
	case map[string]any:
		return errors.New("is a map; allowed is one value")
	case []any:
		list, ok := f.Value.(pflag.SliceValue)
		if !ok {
			return errors.New("is a list; allowed is one value")
		}
		texts := make([]string, len(x))
		for i := range x {
			texts[i] = fmt.Sprint(x[i])
		}
		if err := list.Replace(texts); err != nil {
			return err
		}
		f.Changed = true
		return nil
	default:
		return fs.Set(f.Name, fmt.Sprint(x))
	}
}

// unknownEnvironment lists RAFTMQ_ variables that are no flag of fs: most likely misspelt.
func unknownEnvironment(fs *pflag.FlagSet) []string {
	known := map[string]bool{envPrefix + "_BIN": true, envName(configFlag): true, envName("name-servers"): true}
	fs.VisitAll(func(f *pflag.Flag) { known[envName(f.Name)] = true })
	var unknown []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, envPrefix+"_") && !known[name] {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}

// complete fills in what is derived from other values. changed reports whether a flag was given a
// value by any source.
func (c *Config) complete(changed func(flag string) bool) error {
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return flagError{"data-dir", c.DataDir, err.Error()}
	}
	if c.DataDir != "" {
		c.DataDir = dir
	}
	if most := maxBodyInSegment(c.MappedFileSizeCommitLog); !changed("max-message-size") && c.MaxMessageSize > most {
		c.MaxMessageSize = most
	}
	c.MessageDelayLevel = strings.Join(strings.Fields(c.MessageDelayLevel), " ")
	return c.completeAdvertise()
}

func defaultNodeID() string {
	name, err := os.Hostname()
	if err != nil || !nodeIDPattern.MatchString(name) {
		return "node1"
	}
	return name
}
