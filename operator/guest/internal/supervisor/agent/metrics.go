package agent

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"cloister.dev/guest/internal/foundation/unmeasured"
)

const (
	// sampleEvery is the minimum time between two samples.
	sampleEvery = 4 * time.Second
	gibi        = 1 << 30
	percent     = 100
)

// MetricsDocument is the response of the metrics path. Utilization is in percent of
// what the file gives the enclave, memory in GB of 2^30 bytes; null means that the
// runtime does not show it, or that it needs two samples and has one.
type MetricsDocument struct {
	ID          string   `json:"id"`
	Domain      string   `json:"domain"`
	Image       string   `json:"image"`
	CPUUtil     *float64 `json:"cpu_util"`
	CPUMemUtil  *float64 `json:"cpu_mem_util"`
	CPUMemTotal float64  `json:"cpu_mem_total"`
	CPUType     string   `json:"cpu_type"`
	GPUType     string   `json:"gpu_type"`
}

// meter computes utilization from the counters of containers.
type meter struct {
	at      time.Time
	used    map[*instance]time.Duration
	cpu     *float64 // CPUs in use, averaged between the last two samples
	memory  *float64 // bytes in use
	hasUsed bool
}

// take samples the running containers.
func (m *meter) take(lives map[string]*instance, now time.Time) {
	passed := now.Sub(m.at)
	if passed < sampleEvery {
		return
	}
	used, spent, memory := map[*instance]time.Duration{}, time.Duration(0), int64(0)
	hasCPU, hasMemory := true, true
	for _, one := range lives {
		taken := one.handles.sample()
		hasCPU, hasMemory = hasCPU && taken.hasCPU, hasMemory && taken.hasMemory
		used[one] = taken.cpu
		// An instance that started since the last sample has used all of its time since then.
		spent += max(0, taken.cpu-m.used[one])
		memory += taken.memory
	}
	m.cpu, m.memory = nil, nil
	if hasCPU && m.hasUsed {
		m.cpu = pointer(spent.Seconds() / passed.Seconds())
	}
	if hasMemory {
		m.memory = pointer(float64(memory))
	}
	m.at, m.used, m.hasUsed = now, used, hasCPU
}

// document returns the metrics.
func (m *meter) document(about Metrics, values unmeasured.Document) MetricsDocument {
	labels := values.Labels
	spec := MetricsDocument{ID: labels.ID, Domain: values.Domain(), Image: labels.Image, CPUType: labels.CPUType,
		GPUType: labels.GPUType, CPUMemTotal: float64(about.MemoryBytes) / gibi}
	if m.cpu != nil {
		spec.CPUUtil = pointer(rounded(percent * *m.cpu / float64(about.CPUs)))
	}
	if m.memory != nil {
		spec.CPUMemUtil = pointer(rounded(percent * *m.memory / float64(about.MemoryBytes)))
	}
	return spec
}

// gauges returns the metrics in the Prometheus text format; unknown values are left out.
func (d MetricsDocument) gauges(service string) string {
	prefix := strings.ReplaceAll(service, "-", "_") + "_enclave_"
	labels := fmt.Sprintf("{id=%s,domain=%s,image=%s}", quoted(d.ID), quoted(d.Domain), quoted(d.Image))
	var text strings.Builder
	gauge := func(name, help string, value *float64, labels string) {
		if value != nil {
			fmt.Fprintf(&text, "# HELP %[1]s %[2]s\n# TYPE %[1]s gauge\n%[1]s%[3]s %[4]s\n", prefix+name, help, labels,
				strconv.FormatFloat(*value, 'g', -1, 64))
		}
	}
	gauge("cpu_util", "Processor time in use, in percent of the enclave's processors.", d.CPUUtil, labels)
	gauge("cpu_mem_util", "Memory in use, in percent of the enclave's memory.", d.CPUMemUtil, labels)
	gauge("cpu_mem_total", "Memory of the enclave in GB.", &d.CPUMemTotal, labels)
	gauge("info", "Always 1; the labels are the CPU and GPU types.", pointer(1.0),
		strings.TrimSuffix(labels, "}")+fmt.Sprintf(",cpu_type=%s,gpu_type=%s}", quoted(d.CPUType), quoted(d.GPUType)))
	return text.String()
}

// quoted returns a label value quoted for the text format.
func quoted(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(value) + `"`
}

func rounded(value float64) float64 { return math.Round(value*percent) / percent }

func pointer(value float64) *float64 { return &value }
