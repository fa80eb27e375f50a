// llama.cpp through node-llama-cpp: JSON objects over standard input and output, one a line.
//
// node llama_cpp.mjs MODULES TARGET.gguf [DRAFT.gguf]
//
// A question is {"mode": "plain" | "assisted" | "lookup", "prompts": [[id, ...]], "num_tokens": N, "fixed": bool}.

import {availableParallelism} from "node:os";
import {createInterface} from "node:readline";
import {pathToFileURL} from "node:url";

const [modules, targetPath, draftPath] = process.argv.slice(2);
const {DraftSequenceTokenPredictor, InputLookupTokenPredictor, getLlama} = await import(
    pathToFileURL(`${modules}/node-llama-cpp/dist/index.js`)
);

const CONTEXT_SIZE = 4096;
const send = (message) => process.stdout.write(JSON.stringify(message) + "\n");
const threads = availableParallelism();
const llama = await getLlama({
    gpu: false, build: "never", progressLogs: false, maxThreads: threads,
    logger: (level, message) => process.stderr.write(`${level}: ${message}\n`)
});
const target = await llama.loadModel({modelPath: targetPath});
const draft = draftPath === undefined ? null : await llama.loadModel({modelPath: draftPath});

// One context per mode, kept: building one takes longer than many an answer.
const contexts = new Map();

async function sequenceOf(mode) {
    if (!contexts.has(mode)) {
        const context = await target.createContext({contextSize: CONTEXT_SIZE, threads});
        let tokenPredictor;
        if (mode === "lookup")
            tokenPredictor = new InputLookupTokenPredictor();
        else if (mode === "assisted") {
            const draftContext = await draft.createContext({contextSize: CONTEXT_SIZE, threads});
            tokenPredictor = new DraftSequenceTokenPredictor(draftContext.getSequence());
        }
        contexts.set(mode, context.getSequence({tokenPredictor}));
    }
    return contexts.get(mode);
}

async function answer({mode, prompts: [prompt], num_tokens: numTokens, fixed}) {
    const sequence = await sequenceOf(mode);
    await sequence.clearHistory();
    const ids = [];
    const start = performance.now();
    let first = null;
    // An end id is given to the caller when the stream ends with it, as the other programs do.
    for await (const token of sequence.evaluate(prompt, {temperature: 0, yieldEogToken: true})) {
        first ??= performance.now();
        ids.push(token);
        if (ids.length >= numTokens || (!fixed && target.isEogToken(token)))
            break;
    }
    const end = performance.now();
    return {ids: [ids], first_s: ((first ?? end) - start) / 1000, total_s: (end - start) / 1000};
}

send({"llama.cpp": llama.llamaCppRelease?.release ?? "unknown", threads});
for await (const line of createInterface({input: process.stdin})) {
    try {
        send(await answer(JSON.parse(line)));
    } catch (error) {
        send({error: String(error)});
    }
}
process.exit(0);
