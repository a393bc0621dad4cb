const t=performance.now(); const m0=process.memoryUsage().rss
for (const m of process.argv.slice(2)) await import(m)
globalThis.gc?.()
console.log(process.argv.slice(2).join(" "), (performance.now()-t).toFixed(0),"ms", ((process.memoryUsage().rss-m0)/1e6).toFixed(0),"MB")
