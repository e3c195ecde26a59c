// Asks yaml-language-server what an editor shows for a plan, over the protocol that editors speak.
//   usage: node ask.mjs SERVER SCHEMA
import { spawn } from 'node:child_process';
import assert from 'node:assert/strict';
import { pathToFileURL } from 'node:url';
import path from 'node:path';

const [server, schema] = process.argv.slice(2);
const child = spawn(process.execPath, [server, '--stdio'], { stdio: ['pipe', 'pipe', 'inherit'] });

// Messages are JSON after a header with their length.
let received = Buffer.alloc(0);
let next = 1;
const answers = new Map();
const waiting = [];
const diagnostics = new Map();

function send(message) {
  const body = Buffer.from(JSON.stringify({ jsonrpc: '2.0', ...message }));
  child.stdin.write(`Content-Length: ${body.length}\r\n\r\n`);
  child.stdin.write(body);
}

function request(method, params) {
  const id = next++;
  send({ id, method, params });
  return new Promise((resolve, reject) => answers.set(id, { resolve, reject }));
}

const settings = {
  yaml: {
    schemas: { [pathToFileURL(path.resolve(schema)).href]: '*.plan.yaml' },
    schemaStore: { enable: false },
    validate: true,
    completion: true,
    hover: true,
  },
};

function take(message) {
  if (message.method === undefined) {
    const { resolve, reject } = answers.get(message.id);
    return message.error ? reject(new Error(JSON.stringify(message.error))) : resolve(message.result);
  }
  if (message.method === 'textDocument/publishDiagnostics') {
    diagnostics.set(message.params.uri, message.params.diagnostics);
    waiting.splice(0).forEach((wake) => wake());
  } else if (message.method === 'workspace/configuration') {
    const result = message.params.items.map(({ section }) => settings[section] ?? null);
    send({ id: message.id, result });
  } else if (message.id !== undefined) {
    send({ id: message.id, result: null });
  }
}

child.stdout.on('data', (chunk) => {
  received = Buffer.concat([received, chunk]);
  for (;;) {
    const end = received.indexOf('\r\n\r\n');
    if (end < 0) return;
    const length = Number(/Content-Length: (\d+)/i.exec(received.subarray(0, end).toString())[1]);
    if (received.length < end + 4 + length) return;
    const body = received.subarray(end + 4, end + 4 + length).toString();
    received = received.subarray(end + 4 + length);
    take(JSON.parse(body));
  }
});
child.on('exit', (code) => {
  console.error(`the language server ended with ${code}`);
  process.exit(1);
});

function open(name, text) {
  const uri = `file:///plans/${name}`;
  send({ method: 'textDocument/didOpen', params: { textDocument: { uri, languageId: 'yaml', version: 1, text } } });
  return uri;
}

async function mistakes(name, text) {
  const uri = open(name, text);
  while (!diagnostics.has(uri)) await new Promise((wake) => waiting.push(wake));
  return diagnostics.get(uri).map(({ range, message }) => `${range.start.line + 1}:${range.start.character + 1} ${message}`);
}

// The candidates at the `|` of a text.
async function candidates(name, text) {
  const before = text.slice(0, text.indexOf('|'));
  const uri = open(name, text.replace('|', ''));
  const position = { line: before.split('\n').length - 1, character: before.length - before.lastIndexOf('\n') - 1 };
  const found = await request('textDocument/completion', { textDocument: { uri }, position });
  return found.items.map(({ label }) => label);
}

await request('initialize', {
  processId: process.pid,
  rootUri: null,
  capabilities: { workspace: { configuration: true }, textDocument: { completion: { completionItem: {} } } },
});
send({ method: 'initialized', params: {} });
send({ method: 'workspace/didChangeConfiguration', params: { settings } });

const head = 'version: 1\nname: lab\ntests:\n  bulk:\n';
assert.deepEqual(await mistakes('well.plan.yaml', `${head}    workload: tcp_stream\n    message_size: 64KiB\n`), []);

const flagged = await mistakes('misspelt.plan.yaml', `${head}    workload: tcp_stream\n    mesage_size: 64KiB\n`);
console.log(`flagged: ${flagged[0]}`);
assert.equal(flagged.length, 1);
assert.match(flagged[0], /^6:5 .*mesage_size/);

const workloads = await candidates('workload.plan.yaml', `${head}    workload: |\n`);
console.log(`workload: ${workloads.filter((label) => label.startsWith('tcp_')).join(' ')}`);
for (const name of ['tcp_stream', 'tcp_rr', 'udp_stream']) assert.ok(workloads.includes(name), `${name} in ${workloads}`);

const keys = await candidates('keys.plan.yaml', `${head}    workload: tcp_stream\n    mess|\n`);
assert.ok(keys.includes('message_size'), `message_size in ${keys}`);

// A line in the plan names the schema as well.
const line = `# yaml-language-server: $schema=${pathToFileURL(path.resolve(schema)).href}\n`;
const named = await mistakes('named.yaml', `${line}${head}    workload: tcp_stream\n    mesage_size: 1\n`);
console.log(`flagged by the schema that a line names: ${named[0]}`);
assert.equal(named.length, 1);
assert.match(named[0], /^7:5 /);

child.removeAllListeners('exit');
child.kill();
console.log('5 passed, 0 failed');
